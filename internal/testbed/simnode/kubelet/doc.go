// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the pure model of a simulated node: it decides what a kubelet and its container runtime do with
// the pods bound to one node, and renders that as pod statuses.
//
// It covers admission, container lifecycles, restarts with backoff, OOM kills, memory pressure and eviction, graceful
// deletion and in-place resize. It has no clients, goroutines, clocks or files: every call has the time as an argument,
// and equal sequences of calls yield equal statuses. A Node is not safe for concurrent use; package simnode holds a
// lock per node.
package kubelet
