// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simnode runs simulated nodes against a real API server: one process plays the kubelets of a dozen to some
// hundred nodes. It owns what touches the world: the pod watch, the timers, the patches, heartbeats and leases, the
// HTTPS endpoints of the kubelets (package kubeletapi) and of metrics.k8s.io (package metricsapi). What a node makes of
// its pods is decided in package kubelet, which knows none of that.
//
// All pods share one watch, one timer heap and a bounded set of workers; there is no goroutine per pod. Each node has a
// lock, held while its model is asked and never across a call to the API server. The lock order is: a node's lock, then
// none.
//
// It must not know what the load of containers is (others implement Load) nor how certificates are issued.
package simnode
