// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// Sample is a raw measurement, as a source hands it out.
type Sample struct {
	At    time.Time
	Value float64
}

// FromSamples puts raw samples on a regular grid that ends with the newest one, whatever their order:
//
//   - samples are sorted; of several for one cell of the grid the latest wins, of equal times the later in the slice;
//   - the step is the median distance of neighbours, rounded to seconds and kept within MinStep and MaxStep: where it
//     changes midway, the finer part is thinned or the coarser one has gaps;
//   - cells without a sample, and samples that are not Usable, are gaps;
//   - the grid holds at most MaxSamples cells: what is older than that before the newest sample is dropped.
//
// The error is ErrEmpty where no sample is usable.
func FromSamples(samples []Sample) (series.Series, error) {
	sorted := slices.Clone(samples)
	slices.SortStableFunc(sorted, func(a, b Sample) int { return a.At.Compare(b.At) })
	usable := slices.IndexFunc(sorted, func(s Sample) bool { return Usable(s.Value) })
	if usable < 0 {
		return series.Series{}, fmt.Errorf("%w: none of %d samples", ErrEmpty, len(samples))
	}
	step := medianStep(sorted)
	newest := sorted[len(sorted)-1].At
	first := sorted[0].At
	// Compare before subtracting: distances of centuries overflow a duration.
	if oldest := newest.Add(-time.Duration(MaxSamples-1) * step); first.Before(oldest) {
		first = oldest
	}
	cells := min(MaxSamples, int((newest.Sub(first)+step/2)/step)+1)
	out := series.Series{Start: newest.Add(-time.Duration(cells-1) * step), Step: step, Values: make([]float64, cells)}
	for i := range out.Values {
		out.Values[i] = series.Gap()
	}
	found := false
	for _, s := range sorted {
		if s.At.Before(out.Start) {
			continue
		}
		// The nearest cell: jitter of a scrape must not open gaps.
		i := min(cells-1, int((s.At.Sub(out.Start)+step/2)/step))
		if Usable(s.Value) {
			out.Values[i] = s.Value
			found = true
		}
	}
	if !found {
		return series.Series{}, fmt.Errorf("%w: none of %d samples within %s of the newest",
			ErrEmpty, len(samples), time.Duration(MaxSamples)*step)
	}
	return out, nil
}

// medianStep returns the median distance of neighbours that differ; a minute where there are none.
func medianStep(sorted []Sample) time.Duration {
	distances := make([]time.Duration, 0, len(sorted))
	for i := 1; i < len(sorted); i++ {
		if d := sorted[i].At.Sub(sorted[i-1].At); d > 0 {
			distances = append(distances, d)
		}
	}
	if len(distances) == 0 {
		return time.Minute
	}
	slices.Sort(distances)
	return min(MaxStep, max(MinStep, distances[len(distances)/2].Round(time.Second)))
}
