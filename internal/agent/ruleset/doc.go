// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ruleset turns NodeQOS, PodQOS and AvoidanceAction into the policy of one node: which rules hold there, in which order, and
// which actions may be taken on which pod. What cannot be used is said, with the object and the field, and nothing else suffers from it.
package ruleset
