// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rebalance decides which pods leave nodes that stay too hot: a node that is above the mark evict for several
// readings gives up its cheapest pods, each only if another node has room for it, is open to it by the rules of the
// scheduler, and stays below the mark schedule with it.
//
// It has no side effect and no clock, and knows no object of Kubernetes: whether a pod fits a node by requests, taints,
// selectors and affinity, and how many disruptions a budget allows, are given to it.
package rebalance
