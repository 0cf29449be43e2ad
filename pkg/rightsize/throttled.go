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
	// throttledAtAll is the share of throttled periods below which the kernel did not throttle a container.
	throttledAtAll = 0.01
	// throttledRaise is the factor by which a request exceeds a limit that throttles: one step toward an unknown need, to
	// be evaluated again with the following usage.
	throttledRaise = 1.2
	// largerLimit is the factor by which a limit must exceed one that throttled for its usage to show the need.
	largerLimit = 1.05
)

// AtLimit is the usage of one day beside the CPU limits of that day.
type AtLimit struct {
	// Limited is the number of samples of pods with a known limit, Samples the number of those that are at it. Where the counters of the
	// kernel show that a pod was not throttled, none of its samples is.
	Limited, Samples uint32
	// Limit is the largest limit of the day, in cores.
	Limit float32
	// Throttled is the number of samples of pods that the kernel throttled in more than a few periods, by its counters, and ThrottledLimit
	// the largest limit of such a pod, in cores. Their samples may be far below the limit: bursts last less than a sample.
	Throttled      uint32
	ThrottledLimit float32
}

// Throttling is the share of the periods of a day in which the kernel throttled a container.
type Throttling struct{ Share units.Ratio }

// add counts the usage of a pod with a limit in cores; 0 if it has none or it is unknown. throttling is nil where it was not counted.
func (a *AtLimit) add(part series.Series, limit float64, throttling *Throttling) {
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

	switch {
	case throttling == nil:
	case throttling.Share >= unknownNeedShare:
		next.Throttled = next.Limited
		next.ThrottledLimit = float32(limit)
	case throttling.Share < throttledAtAll:
		next.Samples = 0
	}

	a.merge(next)
}

// merge adds the usage of another part of the day.
func (a *AtLimit) merge(other AtLimit) {
	a.Limited += min(other.Limited, math.MaxUint32-a.Limited)
	a.Samples += min(other.Samples, math.MaxUint32-a.Samples)
	a.Limit = max(a.Limit, other.Limit)
	a.Throttled += min(other.Throttled, math.MaxUint32-a.Throttled)
	a.ThrottledLimit = max(a.ThrottledLimit, other.ThrottledLimit)
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

	value := raiseUntil(s.value, limitOf, func(limit float64) bool { return share(limit) < unknownNeedShare })
	if value > s.value {
		s.step(StepThrottled, value, fmt.Sprintf("its limit would throttle %s of the time or more", percent(unknownNeedShare)))
	}
}

// notBelowThrottling raises the value until its limit is not below one at which the counters of the kernel show throttling: bursts that are
// shorter than a sample need more than the limit, and samples do not show how much. The limit is kept rather than raised, because
// the usage, which is known, needs no more.
func (s *sizer) notBelowThrottling(days []*Day, limitOf func(request float64) float64) {
	throttledSamples := 0.0
	total := 0.0
	throttling := 0.0
	for _, d := range days {
		throttledSamples += float64(d.AtLimit.Throttled)
		total += float64(d.CPU.Total())
		throttling = max(throttling, float64(d.AtLimit.ThrottledLimit))
	}

	share := throttledSamples / total
	if !(share >= unknownNeedShare) {
		return
	}

	detail := fmt.Sprintf("pods with a CPU limit of %s were throttled in %s of its periods or more, for %s of the time", s.unit.format(throttling),
		percent(unknownNeedShare), percent(units.Ratio(min(1, share))))
	s.flag(FlagThrottled, detail)

	value := raiseToLimit(s.value, limitOf, throttling)
	if value > s.value {
		s.step(StepThrottled, value, detail+": the limit is not lowered")
	}
}

// raiseUntil returns the least value from a given one on, in small steps, whose limit is enough or which has none.
func raiseUntil(value float64, limitOf func(request float64) float64, enough func(limit float64) bool) float64 {
	const (
		step     = 1.01
		maxSteps = 1000 // A factor of 20,000.
	)

	for range maxSteps {
		limit := limitOf(value)
		if !(limit > 0 && value > 0) || enough(limit) {
			break
		}

		value *= step
	}

	return value
}

// raiseToLimit returns the least value from a given one on whose limit is not below an amount, or which has none. It is exact, as a value that is a little larger
// would raise the limit with each recommendation.
func raiseToLimit(value float64, limitOf func(request float64) float64, amount float64) float64 {
	const tolerance = 1e-6
	enough := func(limit float64) bool { return limit >= amount*(1-tolerance) }

	low := value
	high := raiseUntil(value, limitOf, enough)
	for high > low*(1+tolerance) {
		middle := (low + high) / 2
		if enough(limitOf(middle)) {
			high = middle
		} else {
			low = middle
		}
	}

	return high
}
