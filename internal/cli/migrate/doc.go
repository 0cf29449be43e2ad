// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrate moves a cluster from gocrane to Crane and back: it takes an inventory of what a gocrane installation owns, exports it,
// and replaces it in steps that are recorded in the cluster, can be resumed after a crash and undone until the migration is finished.
//
// What becomes of an object and which steps there are is computed from plain values; only operations (operation.go) write.
package migrate
