// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli implements the commands of `crane`, which also runs as a kubectl plugin (kubectl-crane). A command
// parses flags, reads metrics through internal/metrics and the cluster through internal/kube/workload, computes
// recommendations with pkg/recommend and prints them. Only `crane adopt --yes` writes to a cluster.
//
// # Exit codes
//
//	0  at least one recommendation is available
//	1  the command failed: no data source, missing permissions, or an invalid response
//	2  invalid flags
//	3  no failure, but nothing to recommend: the namespace does not exist, has no workload, or no workload has enough
//	   history; for cost: no node to price
//	4  a request deviates from its recommendation by more than --fail-on allows
package cli
