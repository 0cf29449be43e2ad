// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
)

// season returns how many units the season of the newest units has: a day, or another length that they show clearly.
//
// Another length is taken where the autocorrelation of the blocks at it is a peak, clearly higher than at a day, and
// repeats often enough to be believed. Lengths that divide a day need no season of their own once there are some days:
// a day holds them. Seasons of several whole days must repeat more often: a holiday or two make weeks look like them.
// Weeks are the business of likeness.
func (m *Model) season(newest int, t tuning) int {
	perDay := m.layout.perDay()
	perBlock := m.layout.perBlock()
	values := m.blockValues(newest, perBlock)
	longest := int(float64(len(values)) / t.seasonRepeats)
	if longest < 4 {
		return perDay
	}
	variance := dot(values, values, 0)
	if !(variance > 0) {
		return perDay
	}
	best := t.peak(values, variance, longest, perDay/perBlock)
	if best == 0 {
		return perDay
	}
	return m.refine(newest, best*perBlock, perBlock)
}

// peak returns the lag at which values repeat, clearly better than at a day; 0 where a day or a week explains them as well.
func (t tuning) peak(values []float64, variance float64, longest, day int) int {
	at := func(lag int) float64 {
		if lag >= len(values) {
			return 0
		}
		return dot(values, values, lag) / variance * float64(len(values)) / float64(len(values)-lag)
	}
	correlation := make([]float64, min(longest, len(values)-1)+2)
	for lag := range correlation {
		correlation[lag] = at(lag)
	}
	// What a week explains as well, a week is: its days are just not alike.
	atDay, atWeek := at(day), 0.0
	if len(values) >= 10*day {
		atWeek = at(7 * day)
	}
	best, lowest := 0, 1.0
	for lag := 1; lag < len(correlation)-1; lag++ {
		c := correlation[lag]
		lowest = min(lowest, c)
		high := lag >= 2 && c >= correlation[lag-1] && c >= correlation[lag+1] && c-lowest >= t.seasonDepth
		seldom := lag%day == 0 && float64(len(values)) < t.wholeDayRepeats*float64(lag)
		if high && !seldom && c > t.seasonStrength && c > atDay+t.seasonMargin && c > atWeek && (best == 0 || c > correlation[best]+t.seasonMargin) {
			best = lag
		}
	}
	if best == 0 || partOfDay(best, day, len(values)) || best%(7*day) == 0 {
		return 0
	}
	return best
}

// partOfDay reports whether a day, seen three times where it is longer, holds a season.
func partOfDay(season, day, seen int) bool {
	return season == day || day%season == 0 && seen >= 3*day
}

// blockValues returns the centred means of the blocks of the newest units, oldest first. Values are clipped at their
// 95th percentile, so that a spike does not decide what is a season; gaps count as average.
func (m *Model) blockValues(newest, perBlock int) []float64 {
	values := make([]float64, newest/perBlock)
	for i := range values {
		values[len(values)-1-i] = m.blockLevel(i*perBlock+1, perBlock)
	}
	return centre(values)
}

func centre(values []float64) []float64 {
	usable := make([]float64, 0, len(values))
	for _, v := range values {
		if !math.IsNaN(v) {
			usable = append(usable, v)
		}
	}
	if len(usable) == 0 {
		return nil
	}
	slices.Sort(usable)
	limit := usable[len(usable)*95/100]
	sum := 0.0
	for _, v := range usable {
		sum += min(v, limit)
	}
	mean := sum / float64(len(usable))
	for i, v := range values {
		values[i] = 0
		if !math.IsNaN(v) {
			values[i] = min(v, limit) - mean
		}
	}
	return values
}

// refine looks for the best length in units around one that was found in blocks.
func (m *Model) refine(newest, around, reach int) int {
	if reach <= 1 {
		return around
	}
	values := m.blockValues(newest, 1)
	best, score := around, math.Inf(-1)
	for lag := around - reach; lag <= around+reach; lag++ {
		if lag < 2 || lag >= len(values) {
			continue
		}
		if c := dot(values, values, lag) / float64(len(values)-lag); c > score {
			best, score = lag, c
		}
	}
	return best
}

// dot returns the sum of a[i]*b[i+lag].
func dot(a, b []float64, lag int) float64 {
	sum := 0.0
	b = b[lag:]
	for i, v := range b {
		sum += a[i] * v
	}
	return sum
}
