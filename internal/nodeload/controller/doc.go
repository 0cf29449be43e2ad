// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller writes the load of nodes into their annotations, for schedulers: one query for each metric and all
// nodes, one patch for a node and round, and only where a value moved materially or is about to expire. It also writes the
// hot value, from pods that it watches, for schedulers that do not count placements themselves.
//
// A round reads as everywhere in Crane: observe (nodes from the cache, metrics from their sources), decide (planRound,
// without side effect), act (patches, events, metrics). What cannot be read is told for each node and metric and never
// written: the old annotation is left to age.
//
// What a value means and when it is fresh is pkg/nodeload's.
package controller
