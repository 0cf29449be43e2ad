// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simnode runs simulated nodes against a real API server: one process simulates the kubelets of up to some
// hundred nodes. It contains all I/O: the pod watch, the timers, the patches, heartbeats and leases, the HTTPS
// endpoints of the kubelets (package kubeletapi) and of metrics.k8s.io (package metricsapi). Package kubelet decides
// what a node does with its pods.
//
// All pods share one watch, one timer heap and a bounded set of workers; there is no goroutine per pod. Each node has a
// lock, which is held while its model is used and never during a call to the API server. No other lock is acquired
// while it is held.
package simnode
