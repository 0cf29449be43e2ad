// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package savingsrecorder records, on the leader, what the cluster costs and what adopted recommendations save, so that both are known
// after Prometheus has deleted its samples.
//
// The saving of an adopted workload is the price of the difference between its requests before the adoption, which are in the adoption state
// on the workload, and the requests of its running pods. It is not the usage, and it is no invoice: the bill falls when nodes are removed.
package savingsrecorder
