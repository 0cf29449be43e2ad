// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of ensurance.crane.io/v1alpha1: the thresholds of a node (NodeQOS), the pods to which
// actions may be applied (PodQOS) and the actions (AvoidanceAction), with the schema markers and well-known keys of the
// group.
//
// +groupName=ensurance.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
