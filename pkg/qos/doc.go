// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package qos decides what is done on a node that is tight: from what was observed, the rules of that node and what was done before it
// makes a plan: keep new pods away, take cpu from pods or give it back, evict pods, each with its reason and its numbers.
//
// It has no side effect and no clock, and knows no object of Kubernetes, no cgroup and no file, so that the same decisions run in an
// agent, in a dry run, in a replay of a recording and in a simulation of days.
//
// What holds for all of it: what is missing, stale or not a number is unknown, and nobody is throttled or evicted for what is not known.
// Decisions follow from the present state, not from its changes: an action that failed or was undone by somebody is decided again.
package qos
