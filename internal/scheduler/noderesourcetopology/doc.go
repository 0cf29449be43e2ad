// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package noderesourcetopology is the scheduler plugin NodeResourceTopologyMatch: it places pods with whole CPUs on
// nodes whose NUMA zones have them free, and writes the assigned zones into an annotation of the pod.
//
// The accounting of zones is in pkg/numa; this package reads NodeResourceTopologies and pods from informers and
// implements the framework's interfaces. It must not link k8s.io/kubernetes.
//
// The plugin's instances (one per profile) share two maps, because they place on the same nodes: the store (the zones
// of nodes and what arriving pods hold) and the waiting pods. Each has its own lock; the store's may be taken while
// that of the waiting pods is held, never the reverse, and no lock is held during calls of the framework.
package noderesourcetopology
