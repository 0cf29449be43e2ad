// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine runs the real scheduler framework with its real plugins on a world in virtual time: upstream's cache, snapshot
// and framework, a scheduling cycle that follows upstream's step by step, and a queue of events in place of an API server. The
// same scenario, seed and policy give the same placements. It links k8s.io/kubernetes, and is the only part of the simulator that
// does; what can be said without it lives beside it.
package engine
