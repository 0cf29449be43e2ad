// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topology knows a node's NUMA zones: it reads them from /sys and what is reserved of them from the kubelet's configuration, and
// keeps the NodeResourceTopology that the scheduler reads. Who runs on which CPUs is the package cpumanager's.
package topology
