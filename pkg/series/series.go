// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package series implements time series as plain values: regular grids with explicit gaps, resampling and units.
//
// Every other package below pkg/ uses it. It does not depend on the source of samples (see internal/metrics) or on
// their use.
package series

import (
	"math"
	"time"
)

// Series is a regular grid of samples. Values[i] was observed at Start + i*Step; NaN marks a gap. Infinities and
// negative values never enter a Series that a source of Crane made (they are counted as gaps there).
type Series struct {
	// Start is the time of Values[0].
	Start time.Time
	// Step is the distance between two values; > 0 unless the series is empty.
	Step time.Duration
	// Values are the samples in the unit of the series (cores for CPU, bytes for memory).
	Values []float64
}

// Time returns the time of Values[i].
func (s Series) Time(i int) time.Time { return s.Start.Add(time.Duration(i) * s.Step) }

// End returns the time just after the last value: Start + len(Values)*Step.
func (s Series) End() time.Time { return s.Time(len(s.Values)) }

// Gap is the value of a missing sample.
func Gap() float64 { return math.NaN() }

// IsGap reports whether v is a missing sample.
func IsGap(v float64) bool { return math.IsNaN(v) }
