// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !craneclockoffset

// Package wallclock provides the clock that a binary injects into its parts. Builds with the tag craneclockoffset, which tests make, add an
// offset to it, so that tests can let the clock of a process jump.
package wallclock

import "k8s.io/utils/clock"

// New returns the clock of the system.
func New() clock.WithTicker { return clock.RealClock{} }
