// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeload is what Crane knows of the load of nodes: the format in which a node carries it (annotations of a
// value and a time, compatible with gocrane), when a value is fresh enough to act on, the policy that says which metrics
// count and how much, the water marks that scheduler, rebalancing and node agent share, and the decisions that follow.
//
// It knows no client, no clock and no object of Kubernetes: nodes are names, loads are fractions of a node's capacity,
// times are arguments.
package nodeload
