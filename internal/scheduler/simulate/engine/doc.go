// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine runs the real scheduler framework with its real plugins on a simulated cluster in virtual time.
//
// It uses upstream's cache, snapshot and framework, a scheduling cycle that follows upstream's step by step, and an
// event queue in place of an API server. The same scenario, seed and policy give the same placements. It is the only
// part of the simulator that links k8s.io/kubernetes.
package engine
