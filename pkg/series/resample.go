// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"fmt"
	"math"
	"time"
)

// Aggregate is the method that combines the samples of a cell.
type Aggregate int

// The aggregates of Resample.
const (
	// Mean is the mean of the existing samples, for rates such as CPU usage.
	Mean Aggregate = iota
	// Max is the largest sample; right for block maxima of memory.
	Max
)

// Resample converts s to a coarser grid whose cells start at whole multiples of step since the Unix epoch. A cell
// without samples is a gap; gaps within a cell are ignored. A step below that of s is an error, because values in
// between do not exist.
func (s Series) Resample(step time.Duration, aggregate Aggregate) (Series, error) {
	if step <= 0 || step < s.Step {
		return Series{}, fmt.Errorf("resample to a step of %v: must be at least the step of the series, %v", step, s.Step)
	}

	if len(s.Values) == 0 {
		return Series{Start: s.Start, Step: step}, nil
	}

	first := s.Start.Truncate(step)
	cells := int(s.Time(len(s.Values)-1).Sub(first)/step) + 1
	out := Series{Start: first, Step: step, Values: make([]float64, cells)}

	// Both grids are compared as offsets from the first cell, so that no sample is left between two cells.
	offset := s.Start.Sub(first)
	for i, cell := 0, 0; cell < cells; cell++ {
		end := time.Duration(cell+1) * step

		n := 0
		sum := 0.0
		peak := math.Inf(-1)
		for ; i < len(s.Values) && offset+time.Duration(i)*s.Step < end; i++ {
			if v := s.Values[i]; !IsGap(v) {
				n++
				sum += v
				peak = max(peak, v)
			}
		}

		switch {
		case n == 0:
			out.Values[cell] = Gap()
		case aggregate == Max:
			out.Values[cell] = peak
		default:
			out.Values[cell] = sum / float64(n)
		}
	}

	return out, nil
}

// Clean turns values that no usage can have (NaN, infinite, below zero) into gaps, in place, and returns how many
// values were refused beside those that were gaps before.
func (s Series) Clean() (refused int) {
	for i, v := range s.Values {
		if math.IsInf(v, 0) || v < 0 {
			s.Values[i] = Gap()
			refused++
		}
	}

	return refused
}
