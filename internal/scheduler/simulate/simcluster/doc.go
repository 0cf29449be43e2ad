// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simcluster is the simulated cluster: nodes, workloads, the arrival and departure of pods, the true usage of
// each at any time, and a metrics pipeline.
//
// Everything follows from the scenario and a seed, so it is the same for every scheduler. It does not depend on the
// scheduler.
package simcluster
