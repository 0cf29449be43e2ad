// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package qos decides what to do on a node under pressure: from an observation, the node's rules and the previous actions it makes a plan
// that keeps new pods away, throttles, restores or evicts pods, each action with its reason and its numbers.
//
// It has no side effects and no clock, and uses no Kubernetes objects, cgroups or files, so that the same decisions run in the agent, in a
// dry run, in a replay of a recording and in a simulation.
//
// Missing, stale and non-numeric values are unknown, and no pod is throttled or evicted for an unknown value. Decisions follow from the
// current state and not from changes of it: an action that failed or was reverted is decided again.
package qos
