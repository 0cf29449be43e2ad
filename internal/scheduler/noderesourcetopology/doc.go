// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package noderesourcetopology is the scheduler plugin NodeResourceTopologyMatch: a pod that asks for whole CPUs goes to a
// node whose NUMA zones have them, and takes with it, as an annotation, which zones it got. The account of zones and the
// choice among them are pkg/numa's; this package reads NodeResourceTopologies and pods into it, from informers only, and
// speaks the scheduler's framework. It must not link k8s.io/kubernetes.
//
// Two maps are shared by the plugin's instances (one for each profile of a scheduler), because they place on the same
// nodes: the store (what zones have and what pods on their way hold) and the waiting pods. Each has a lock of its own; the store's may
// be taken while that of the waiting pods is held, never the other way round, and no lock is held while the framework is
// called.
package noderesourcetopology
