// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// startupFactor is the factor by which startup must exceed the request to be flagged.
const startupFactor = 2

// sizeCPU computes the CPU request and reports whether there is one.
func sizeCPU(in Input, p Policy) (*sizer, bool) {
	s := &sizer{unit: Cores}
	days := windowDays(in.Profile, in.Now, p.CPU.Window)
	var estimate cpuEstimate
	if in.RunsToCompletion {
		runs := runPeaks(days, func(l podLife) float32 { return l.cpu }, (*Day).maxCPU)
		if !s.runs(len(runs)) {
			return s, false
		}

		estimate = p.CPU.estimateOfRuns(runs)
	} else {
		if !s.history(observedDays(days, func(d *Day) uint32 { return d.CPUHours }), p.CPU.Window, p.MinHistory) {
			return s, false
		}

		estimate = p.CPU.estimate(days, in.Now, in.Reacts)
	}

	s.Estimate = estimate.value
	s.Message = estimate.detail
	s.step(StepEstimate, estimate.value, estimate.detail)

	if estimate.value == 0 {
		s.flag(FlagIdle, fmt.Sprintf("no CPU use above zero in %.1f days", s.Days))
	}

	s.implausible(days, func(d *Day) Implausible { return d.ImplausibleCPU })
	s.spike(estimate.points, false)
	s.throttled(days, floatOf(in.Current.CPULimit)/1000)
	s.calibration(estimate)

	// The margin of a calibration is its multiplier, which calibration has applied.
	if estimate.calibration == nil {
		s.margin(estimate.margin, estimate.marginDetail)
	}
	if estimate.busiest > s.value {
		s.step(StepBusiestDay, estimate.busiest, "the mean of the busiest day: its work must fit in the day")
	}

	if estimate.recent > s.value {
		s.flag(FlagLevelShift, "the last day used more than most days of the window")
		s.step(StepRecent, estimate.recent, "the "+percentile(p.CPU.Envelope.Recent)+" of the last day")
	}

	s.utilization(p.CPU.TargetUtilization)
	current := floatOf(in.Current.CPURequest) / 1000
	s.noRequest(current)

	if in.HPA != nil && s.value > 0 {
		s.scalePoint(in.HPA.CPUUtilization, current)
	}
	if startup := startPeak(days, func(d *Day) float32 { return d.StartCPU }); startup > startupFactor*s.value {
		s.flag(FlagStartup, fmt.Sprintf("starting took up to %s, which steady use never needs: a start-up boost, or a limit that allows it", Cores.format(startup)))
	}

	limitOf := func(request float64) float64 {
		limit, _ := p.CPU.Limit.apply(request, current, floatOf(in.Current.CPULimit)/1000)
		return limit
	}
	s.outsideLimit(days, limitOf)
	s.notBelowThrottling(days, limitOf)
	s.clamp(float64(p.CPU.Step)/1000, float64(p.CPU.Floor)/1000, float64(p.CPU.Ceiling)/1000, float64(in.MaxCPU)/1000)
	if !in.RunsToCompletion {
		s.weeklyPeak(days, in.Now)
	}

	return s, true
}

// Need returns the CPU that the days require, margin included, before target utilization, rounding and bounds, in the unit
// of the samples; NaN if the days have no sample. It is proportional to the usage.
func (p CPUPolicy) Need(days []*Day, now time.Time) float64 {
	estimated := p.estimate(days, now, false)
	return max(estimated.value*(1+float64(estimated.margin)), estimated.busiest, estimated.recent)
}

// cpuEstimate is the CPU that usage requires and its derivation.
type cpuEstimate struct {
	value  float64
	margin units.Ratio
	// recent is the CPU that the last day requires at least, busiest that of the day with the highest mean, margin included.
	recent, busiest      float64
	detail, marginDetail string
	// points are those of the days; only with Envelope.
	points []dayValue
	// calibration is the result of the replay; only with Calibrated. If it is nil there, notCalibrated has the reason.
	calibration   *calibrate.Calibration
	notCalibrated error
}

func (p CPUPolicy) estimate(days []*Day, now time.Time, reacts bool) cpuEstimate {
	switch p.Method {
	case Envelope:
		return p.envelope(days, now)
	case Calibrated:
		return p.calibrated(days, now, reacts)
	}

	h := histogram.Histogram{}
	for _, d := range days {
		h.Add(&d.CPU, dayWeight(now, d, p.HalfLife))
	}

	return cpuEstimate{
		value:        h.Quantile(float64(p.Percentile)),
		margin:       p.Margin,
		marginDetail: percent(p.Margin) + " on top",
		detail:       fmt.Sprintf("p%.4g of %s%s", float64(p.Percentile)*100, daysText(p.Window), halfLifeText(p.HalfLife)),
	}
}

// envelope covers the points of the days; see EnvelopePolicy.
func (p CPUPolicy) envelope(days []*Day, now time.Time) cpuEstimate {
	use := 0.0
	samples := 0.0
	for _, d := range days {
		use += d.CPU.Sum()
		samples += float64(d.CPU.Total())
	}

	mean := use / samples
	points := make([]dayValue, 0, 16)

	var buffer [histogram.MaxCountBuckets + 1]histogram.Point
	var last *Day
	busiest := 0.0
	longest := 0.0 // Of a container that runs for some hours a day, a day is complete after them.

	// Each day is one point in its upper tail; busiest and last are lower bounds beside the points.
	for _, d := range days {
		if d.CPU.Total() == 0 {
			continue
		}

		observed := float64(bits.OnesCount32(d.CPUHours)) / 24
		points = append(points, dayValue{tailPoint(&d.CPU, mean, float64(p.Percentile), p.Envelope.ViolationPrice, buffer[:0]), observed * dayWeight(now, d, p.HalfLife)})

		if p.Envelope.HoldMean {
			busiest = max(busiest, d.CPU.Sum()/float64(d.CPU.Total()))
		}
		longest = max(longest, observed)
		if p.Envelope.Recent > 0 && observed >= 0.5*longest {
			last = d
		}
	}

	recent := 0.0
	if last != nil {
		recent = last.CPU.Quantile(float64(p.Envelope.Recent))
	}

	value := weightedQuantile(points, float64(p.Envelope.Cover))
	relativeSpread := spread(points) // Sorted points need less work.
	margin := min(p.Margin+p.Envelope.SpreadMargin*units.Ratio(relativeSpread), p.Envelope.MaxMargin)

	return cpuEstimate{
		value:        value,
		margin:       margin,
		recent:       recent,
		busiest:      busiest,
		points:       points,
		detail:       "covers " + percent(p.Envelope.Cover) + " of " + strconv.Itoa(len(points)) + " calendar days" + halfLifeText(p.HalfLife) + ", each at its lowest-cost point from " + percentile(p.Percentile) + " up",
		marginDetail: percent(margin) + " on top: the days differ by " + percent(units.Ratio(relativeSpread)),
	}
}

// tailPoint returns the value of a day that is cheapest in price*share above v - mean/v, from the maximum down to the
// quantile lowest. Values of nearly the same cost contribute to it by their distance, so that noise does not choose between
// two ends of a tail with the same cost. The buffer avoids an allocation per day.
func tailPoint(c *histogram.Counts, mean, lowest, price float64, buffer []histogram.Point) float64 {
	// costScale is the difference in cost, one point of slack, at which the weight of a value falls to 1/e; from farthest times
	// it on the weight is 0.
	const costScale, farthest = 0.01, 5

	// smallest is the weight of an isolated value.
	const smallest = 1e-4

	if price == 0 || lowest >= 1 {
		return c.Quantile(lowest)
	}

	tail := c.AppendTail(buffer, 1-lowest)
	if len(tail) == 0 {
		return 0
	}

	lowestCost := math.Inf(1)
	for i := range tail {
		// From here on only the cost of the share is needed.
		tail[i].Share = price*tail[i].Share - mean/tail[i].Value
		if tail[i].Share < lowestCost {
			lowestCost = tail[i].Share
		}
	}

	sum := 0.0
	weights := 0.0
	above := c.Max()
	for _, p := range tail {
		if excess := p.Share - lowestCost; excess < farthest*costScale {
			w := (above/p.Value - 1 + smallest) * math.Exp(-excess/costScale)
			sum += w * p.Value
			weights += w
		}

		above = p.Value
	}

	return sum / weights
}

// spread returns the relative spread of the values: the median absolute deviation of their logarithms times 1.4826, which
// estimates the standard deviation of a normal distribution. A few outliers do not change it.
func spread(values []dayValue) float64 {
	logs := make([]float64, 0, 32)
	for _, v := range values {
		if v.value > 0 {
			logs = append(logs, math.Log(v.value))
		}
	}

	if len(logs) < 2 {
		return 0
	}

	slices.Sort(logs)
	center := series.QuantileSorted(logs, 0.5)
	for i, v := range logs {
		logs[i] = math.Abs(v - center)
	}

	slices.Sort(logs)
	return 1.4826 * series.QuantileSorted(logs, 0.5)
}

// dayValue is one number for a day, and the weight of the day.
type dayValue struct{ value, weight float64 }

// weightedQuantile sorts values and returns the smallest one that, with those below it, has the share q of the weight; NaN
// if there are none.
func weightedQuantile(values []dayValue, q float64) float64 {
	sortByValue(values)
	total := 0.0
	for _, v := range values {
		total += v.weight
	}

	sum := 0.0
	for _, v := range values {
		sum += v.weight
		if sum >= q*total*(1-1e-12) {
			return v.value
		}
	}

	return math.NaN()
}

// sortByValue sorts the values of days, or the peaks of runs, of which there may be thousands, in place.
func sortByValue(values []dayValue) {
	const few = 32
	if len(values) > few {
		slices.SortFunc(values, func(a, b dayValue) int { return cmp.Compare(a.value, b.value) })
		return
	}

	for i := 1; i < len(values); i++ {
		v := values[i]
		j := i
		for ; j > 0 && v.value < values[j-1].value; j-- {
			values[j] = values[j-1]
		}

		values[j] = v
	}
}

// dayWeight returns the weight of a day: 2^-(age/halfLife), with the age in whole days from the end of the day to now.
func dayWeight(now time.Time, d *Day, halfLife time.Duration) float64 {
	if halfLife == 0 {
		return 1
	}

	age := max(0, now.Sub(d.Day.End()))
	return math.Exp2(-float64(age) / float64(halfLife))
}

func halfLifeText(halfLife time.Duration) string {
	if halfLife == 0 {
		return ""
	}

	return ", half weight after " + units.FormatDuration(halfLife)
}

func startPeak(days []*Day, peakOf func(*Day) float32) float64 {
	peak := float32(0)
	for _, d := range days {
		peak = max(peak, peakOf(d))
	}

	return float64(peak)
}
