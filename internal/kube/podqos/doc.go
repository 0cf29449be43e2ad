// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podqos says which PodQOS is for which pod. It is pure, and shared by whoever looks at pods: the webhook of new ones and
// the agent. What a PodQOS then does with a pod is theirs.
package podqos
