// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller writes the measured load of nodes into their annotations, for schedulers.
//
// It sends one query per metric for all nodes and one patch per node and round, and writes only values that have
// changed enough or are about to expire. It also writes the hot value, from a watch on pods, for schedulers that do
// not count placements themselves.
//
// A round observes (nodes from the cache, metrics from their sources), decides (planner, without side effects) and
// acts (patches, events, metrics). Values that cannot be read are reported per node and metric and never written: the
// old annotation expires. The meaning and freshness of values are defined in pkg/nodeload.
package controller
