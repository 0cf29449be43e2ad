// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simcluster is the truth of a simulation: nodes, workloads, the pods that come and go, what each really uses at each
// moment, and what a metrics pipeline makes of that. It is the same for every scheduler that is tried on it: all of it
// follows from the scenario and a seed. It must not know of the scheduler.
package simcluster
