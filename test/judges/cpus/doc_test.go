// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpus compares the CPUs that Crane gives to containers with those that the kubelet's CPU manager gives, by quality: NUMA nodes,
// sockets, cores in part and L3 caches.
package cpus
