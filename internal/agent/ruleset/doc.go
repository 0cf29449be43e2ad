// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ruleset converts NodeQOS, PodQOS and AvoidanceAction to the policy of one node: its rules in order, and the actions allowed on
// each pod. Invalid objects and fields are reported and do not affect others.
package ruleset
