// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustercost keeps the books of the cluster: what its nodes cost, what each workload bears of that, and what is idle.
//
// Ledger reads nodes, pods and their use from time to time, deals the cost out with pkg/cost and exports it as metrics;
// the controllers of recommendations ask it for prices. It writes nothing to the cluster. It must not know what is
// recommended.
package clustercost
