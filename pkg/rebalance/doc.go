// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rebalance decides which pods leave nodes that stay too hot.
//
// A node that is above the mark evict for several readings loses its cheapest pods, each only if another node has
// free capacity for it, passes the scheduler's filters and stays below the mark schedule with it. The package has no
// side effects, no clock and no Kubernetes objects: whether a pod fits a node by requests, taints, selectors and
// affinity, and how many disruptions a budget allows, are inputs.
package rebalance
