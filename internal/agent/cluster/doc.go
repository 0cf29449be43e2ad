// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster provides the API server's objects for one node: the Node, its pods and the rules. A Watcher keeps them current and keeps
// the last known objects while the API server is unavailable; Static reads them from files. Packages ruleset and inventory interpret them.
package cluster
