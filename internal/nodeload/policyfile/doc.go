// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyfile reads the file of kind DynamicSchedulerPolicy for every binary that acts on it: it decodes
// strictly, turns the file into the domain's policy, and follows changes of the file. A new file that is bad leaves the
// old policy in force, on both sides alike, and is told by the observer and in metrics.
//
// It knows files and the API types; what a policy means is pkg/nodeload's.
package policyfile
