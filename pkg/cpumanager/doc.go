// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpumanager decides which containers of a node run on which CPUs. A scheduler has given each pod a number of CPUs in some zones;
// Divide shares those out among the pod's containers, and Assign finds the CPUs, changing as little as can be of what is. Whole cores,
// exclusiveness and reserved CPUs are the ledger's (pkg/numa); cgroups, pods and files are not known here.
package cpumanager
