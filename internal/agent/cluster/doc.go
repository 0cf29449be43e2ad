// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster is what the API server says of one node: its object, its pods, and the rules that it may be for. A Watcher keeps it
// current by watches and holds what was known while the API server is gone; Static has it from files. What rules mean is ruleset's, what
// pods are inventory's.
package cluster
