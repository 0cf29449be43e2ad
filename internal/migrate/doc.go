// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrate moves a cluster from gocrane to Crane and back: it takes an inventory of what a gocrane installation owns, exports it,
// and replaces it in steps that are recorded in the cluster, can be resumed after a crash and undone until the migration is finished.
//
// What the steps write and what an undo restores is in a file of the operator (statefile.go). The cluster has the progress alone, in a ConfigMap that
// counts only with the key of that file: no object that others may write decides what is done with the rights of the operator.
//
// What becomes of an object and which steps there are is computed from plain values; only operations (operation.go) write.
package migrate
