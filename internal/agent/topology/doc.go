// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topology reads the node's NUMA zones from /sys and their reservations from the kubelet, and writes the NodeResourceTopology for
// the scheduler. CPUs of containers are assigned by internal/agent/cpupinning, zones of pods by internal/scheduler/noderesourcetopology;
// internal/kube/topologyconv converts between API objects and pkg/numa for both.
package topology
