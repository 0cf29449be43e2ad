// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeload decides by the measured load of nodes.
//
// It defines the format of load annotations (a value and a time, compatible with gocrane), their freshness, the
// policy of metrics and weights, the water marks that scheduler, rebalancing and node agent share, and the decisions
// to filter and score nodes. It has no client, no clock and no Kubernetes objects: nodes are names, loads are
// fractions of a node's capacity, times are arguments.
package nodeload
