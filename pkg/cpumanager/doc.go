// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpumanager assigns CPUs to the containers of a node. The scheduler assigned each pod a number of CPUs by zone; Divide divides
// these among the pod's containers, and Assign chooses the CPUs with as few changes as possible. Whole cores, exclusive and reserved CPUs
// are handled by numa.CPUAllocator. The package does not access cgroups, pods or files.
package cpumanager
