// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"slices"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// minHighDays is the minimum number of past days of a high: one day is no distribution.
const minHighDays = 2

// highs returns the quantiles over the past days of the highest sample in each forecast.HighStep of a horizon, all 0 where too few days are
// known; none for slots that do not divide it.
func (m *Model) highs(start, end time.Time, zone *time.Location) []forecast.Quantiles {
	if forecast.HighStep%m.layout.slot != 0 {
		return nil
	}

	seconds := int64(forecast.HighStep / time.Second)
	first := floorDiv(start.Unix(), seconds)

	last := floorDiv(end.Unix()-1, seconds)
	out := make([]forecast.Quantiles, 0, last-first+1)
	clock := newWallClock(zone, (m.head-int64(m.recent.count))*m.layout.seconds(), end.Unix())
	highs := []float64(nil)
	for i := first; i <= last; i++ {
		highs = m.pastHighs(i*seconds, clock, highs[:0])
		out = append(out, m.quantilesOfHighs(highs))
	}

	return out
}

// pastHighs appends the highest samples of the forecast.HighStep that begins at a time, on the days before.
func (m *Model) pastHighs(begin int64, clock wallClock, highs []float64) []float64 {
	slots := int64(forecast.HighStep / m.layout.slot)
	oldest := m.head - int64(m.recent.count)
	for days := int64(1); ; days++ {
		at := clock.daysBefore(begin, days)
		if at < oldest*m.layout.seconds() {
			break
		}

		from := floorDiv(at, m.layout.seconds())
		highest := 0.0
		sampled := false
		for i := from; i < from+slots; i++ {
			if c := m.recent.at(i); !c.empty() {
				highest = max(highest, float64(c.top))
				sampled = true
			}
		}

		if sampled {
			highs = append(highs, highest)
		}
	}

	return highs
}

// quantilesOfHighs returns the quantiles of highs, which it sorts; all 0 where these are of too few days.
func (m *Model) quantilesOfHighs(highs []float64) forecast.Quantiles {
	var out forecast.Quantiles
	if len(highs) < minHighDays {
		return out
	}

	slices.Sort(highs)
	for i, level := range forecast.Levels() {
		out[i] = min(series.QuantileSorted(highs, level)*m.scale, forecast.MaxValue)
	}

	return out
}
