// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption translates between Kubernetes' objects and the values that package pkg/adoption decides upon: pods and
// Recommendations one way, the bodies of requests the other. The controller and the webhook share it. It sends nothing.
package adoption
