// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyfile reads and follows the DynamicSchedulerPolicy file for every binary that uses it.
//
// It decodes strictly and converts the file into the policy of pkg/nodeload. An invalid new file leaves the old
// policy in force and is reported by the observer and in metrics.
package policyfile
