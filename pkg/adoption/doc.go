// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption decides how a recommended size is brought to a workload that runs: up at once, down in steps with a watch
// between, back when a step made something worse, and not at all where somebody else has a say.
//
// Decide is a function of what is seen and of what was written down before (State); it has no clock and changes nothing.
// What it returns is written down first and done afterwards, so that whoever takes over goes on where the last one ended.
// This package must not know how pods are seen or changed, nor how a size was found.
package adoption
