// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of ensurance.crane.io/v1alpha1: what the agent watches on a node (NodeQOS), which pods
// may be touched (PodQOS) and what is done to them (AvoidanceAction). It holds types, their schema markers and the
// well-known keys of the group; it knows nothing of how a node is measured or a pod is throttled.
//
// +groupName=ensurance.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
