// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustercost computes what the nodes of the cluster cost, how much of that each workload uses, and how much is
// idle.
//
// Ledger reads nodes, pods and their usage periodically, allocates the cost with pkg/cost and exports it as metrics;
// recommenders read prices from it. It writes nothing to the cluster. Recommendations do not belong here.
package clustercost
