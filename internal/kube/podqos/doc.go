// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podqos selects the PodQOS of a pod. It is pure, and shared by the webhook of new pods and the agent, which decide what
// a PodQOS does to a pod.
package podqos
