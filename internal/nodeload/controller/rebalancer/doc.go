// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rebalancer moves pods off nodes that stay above the water mark evict.
//
// A round reads the load annotations of nodes. Only if a node has been hot for long enough does it list pods and
// budgets, query the usage of pods, decide (pkg/rebalance), and evict through the eviction API. A dry run, the
// default, only reports. The package converts Kubernetes objects into the input of the decision: free resources of a
// node, whether a pod fits, and why a pod must not be moved.
package rebalancer
