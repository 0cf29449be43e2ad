// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math"

	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

const (
	// atLimitShare is the share of the CPU limit from which usage counts as throttled.
	atLimitShare = 0.95
	// unknownNeedShare is the share of throttled samples from which the need is unknown.
	unknownNeedShare = 0.05
	// throttledRaise is the factor by which a request exceeds a limit that throttles: one step toward an unknown need, to
	// be evaluated again with the following usage.
	throttledRaise = 1.2
	// largerLimit is the factor by which a limit must exceed one that throttled for its usage to show the need.
	largerLimit = 1.05
)

// AtLimit is the usage of one day beside the CPU limits of that day.
type AtLimit struct {
	// Limited is the number of samples of pods with a known limit, Samples the number of those that are at it.
	Limited, Samples uint32
	// Limit is the largest limit of the day, in cores.
	Limit float32
}

// add counts the usage of a pod with a limit in cores; 0 if it has none or it is unknown.
func (a *AtLimit) add(part series.Series, limit float64) {
	if !(limit > 0 && limit <= maxFloat32) {
		return
	}

	next := AtLimit{Limit: float32(limit)}
	for _, v := range part.Values {
		if v >= 0 {
			next.Limited++
		}
		if v >= atLimitShare*limit {
			next.Samples++
		}
	}

	a.merge(next)
}

// merge adds the usage of another part of the day.
func (a *AtLimit) merge(other AtLimit) {
	a.Limited += min(other.Limited, math.MaxUint32-a.Limited)
	a.Samples += min(other.Samples, math.MaxUint32-a.Samples)
	a.Limit = max(a.Limit, other.Limit)
}

// throttled raises the value if usage is at the limit of its time: the measured usage is then the limit, not the need. Where the
// limits of a day are unknown, current is taken for them.
func (s *sizer) throttled(days []*Day, current float64) {
	throttledSamples := 0.0
	total := 0.0
	limit := 0.0    // The largest one that throttled.
	measured := 0.0 // The largest one that did not, since then.
	for _, d := range days {
		at := d.AtLimit
		samples := float64(at.Samples)
		dayLimit := float64(at.Limit)
		if at.Limited == 0 && current > 0 {
			samples = d.CPU.CountAbove(atLimitShare * current)
			dayLimit = current
		}

		dayTotal := float64(d.CPU.Total())
		total += dayTotal
		throttledSamples += samples
		if samples > 0 {
			limit = max(limit, dayLimit)
		}

		switch {
		case samples > 0 && samples >= unknownNeedShare*dayTotal:
			measured = 0
		case dayTotal > 0 && at.Limited > 0:
			measured = max(measured, dayLimit)
		}
	}

	share := throttledSamples / total
	if !(share > 0) {
		return
	}

	detail := fmt.Sprintf("%s of the time use was at the CPU limit of %s", percent(units.Ratio(share)), Cores.format(limit))
	if share < unknownNeedShare {
		s.flag(FlagThrottled, detail)
		return
	}

	if measured >= largerLimit*limit {
		s.flag(FlagThrottled, fmt.Sprintf("%s; since then it was below a limit of %s, which shows the need", detail, Cores.format(measured)))
		return
	}

	detail += ": the need is not known, only that it is more"
	s.flag(FlagThrottled, detail)
	s.Confidence /= 2

	if raised := limit * throttledRaise; raised > s.value {
		s.step(StepThrottled, raised, detail)
	}
}

// outsideLimit raises the value until its own limit would not throttle the usage of the days: a recommendation that counts as
// throttled once it is applied would be raised, and then lowered again, for ever.
func (s *sizer) outsideLimit(days []*Day, limitOf func(request float64) float64) {
	const (
		step     = 1.01
		maxSteps = 1000 // A factor of 20,000.
	)
	bucket := math.Exp2(-1.0 / histogram.BucketsPerOctave) // Counts below a bound are exact to a bucket.
	share := func(limit float64) float64 {
		above := 0.0
		total := 0.0
		for _, d := range days {
			above += d.CPU.CountAbove(atLimitShare * limit * bucket)
			total += float64(d.CPU.Total())
		}

		return above / total
	}

	value := s.value
	for range maxSteps {
		limit := limitOf(value)
		if !(limit > 0 && value > 0 && share(limit) >= unknownNeedShare) {
			break
		}

		value *= step
	}

	if value > s.value {
		s.step(StepThrottled, value, fmt.Sprintf("its limit would throttle %s of the time or more", percent(unknownNeedShare)))
	}
}
