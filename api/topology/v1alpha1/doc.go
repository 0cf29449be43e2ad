// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kind of topology.crane.io/v1alpha1, NodeResourceTopology: the NUMA zones of a node, which
// the agent publishes for the scheduler, with the schema markers and well-known keys of the group.
//
// +groupName=topology.crane.io
// +kubebuilder:object:generate=true
package v1alpha1
