// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli holds the commands of `crane`, which is also a kubectl plugin (kubectl-crane). A command reads flags,
// gathers through internal/metrics and internal/kube/workload, decides with pkg/recommend and prints. It changes nothing in
// a cluster.
//
// # Exit codes
//
//	0  there is at least one recommendation
//	1  the command failed: no source, no rights, an answer that cannot be read
//	2  the flags are wrong
//	3  nothing failed and there is nothing to recommend: no such namespace, no workload in it, or none with enough
//	   history; of cost, no node to price
//	4  a request lies further from its recommendation than --fail-on allows
package cli
