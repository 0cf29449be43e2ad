// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rebalancer moves pods off nodes that stay above the mark evict. A round reads the loads that nodes carry; only
// where one has been too hot for long enough does it list pods and budgets, ask what the pods use, decide (pkg/rebalance),
// and evict through the eviction API, or only tell in a dry run, which is the default.
//
// It translates objects of Kubernetes into what the decision needs: what a node has free, whether a pod fits it, why a pod
// must not be moved.
package rebalancer
