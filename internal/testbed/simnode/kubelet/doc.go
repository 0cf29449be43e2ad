// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the pure model of a simulated node: it decides what a kubelet and its container runtime would
// make of the pods bound to one node, and renders that as pod statuses.
//
// It belongs here: admission, the life of containers, restarts and back-off, out-of-memory kills, memory pressure and
// eviction, graceful deletion, in-place resize. It must not know of clients, goroutines, clocks or files: every call
// takes the time as an argument, and the same calls in the same order give the same statuses. A Node is not safe for
// concurrent use; package simnode holds a lock per node.
package kubelet
