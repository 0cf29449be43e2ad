// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kind of topology.crane.io/v1alpha1, NodeResourceTopology: the NUMA zones of a node, as the
// agent tells them to the scheduler. It holds types, their schema markers and the well-known keys of the group; it knows
// nothing of how zones are found or assigned.
//
// +groupName=topology.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
