// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// enoughHistory is the part of Policy.MinHistory that must have been observed.
const enoughHistory = 0.9

// maxRatio is the largest ratio of limit to request that LimitKeepRatio keeps. Beyond it the current request is meaningless,
// and a proportional limit would be absurd.
const maxRatio = 10

// spikeFactor is the ratio of the highest to the second highest day from which it is a single spike.
const spikeFactor = 1.5

// Recommend sizes a container. The policy must be valid (see Policy.Validate). Every number has steps that lead to it, and
// every request is finite and above zero; a resource with too little data has a status that explains it, and neither request
// nor limit.
func Recommend(in Input, p Policy) Recommendation {
	if len(in.Groups) > 1 {
		return recommendByNodeGroup(in, p)
	}

	r := Recommendation{
		Container: in.Container,
		Policy:    p.Name,
		Init:      in.Init,
		Current:   in.Current,
	}

	cpu, cpuSized := sizeCPU(in, p)
	memory, memorySized := sizeMemory(in, p)

	// Specifications are sizes of both resources, so they apply after the sizing of each.
	if len(p.Specifications) > 0 && cpuSized && memorySized {
		applySpecification(p.Specifications, cpu, memory)
	}

	if cpuSized {
		request := cpu.milliCPU()
		limit := cpu.limitOf(p.CPU.Limit, floatOf(in.Current.CPURequest), floatOf(in.Current.CPULimit))
		r.Target.CPURequest = &request
		r.Target.CPULimit = toUnit(limit, units.MilliCPU(0), 1000)
	}

	if memorySized {
		request := memory.bytes()
		limit := memory.limitOf(p.Memory.Limit, floatOf(in.Current.MemoryRequest), floatOf(in.Current.MemoryLimit))
		r.Target.MemoryRequest = &request
		r.Target.MemoryLimit = toUnit(limit, units.Bytes(0), 1)
	}

	r.CPU = cpu.Sizing
	r.Memory = memory.Sizing

	// Only an autoscaler that scales on one of the resources has a new target.
	if cpu.hpaTarget > 0 || memory.hpaTarget > 0 {
		target := *in.HPA
		if cpu.hpaTarget > 0 {
			target.CPUUtilization = cpu.hpaTarget
		}
		if memory.hpaTarget > 0 {
			target.MemoryUtilization = memory.hpaTarget
		}
		if target != *in.HPA {
			r.HPA = &target
		}
	}

	return r
}

// usualSteps is the number of steps of most sizings: estimate, margin, rounding, limit.
const usualSteps = 4

// sizer computes the request of one resource step by step.
type sizer struct {
	Sizing
	unit Unit
	// value is the current request, in cores or bytes.
	value float64
	// hpaTarget is the new target of the autoscaler; 0 if there is none.
	hpaTarget units.Ratio
}

// step changes the value and records the reason.
func (s *sizer) step(code StepCode, to float64, detail string) {
	if s.Steps == nil {
		s.Steps = make([]Step, 0, usualSteps)
	}

	s.Steps = append(s.Steps, Step{
		Code:   code,
		Unit:   s.unit,
		From:   s.value,
		To:     to,
		Detail: detail,
	})

	s.value = to
}

// maxQuantity is the largest request or limit, in its unit: larger numbers, of samples that are no measurements, have no integer.
const maxQuantity = 1 << 62

func (s *sizer) flag(code FlagCode, detail string) {
	s.Flags = append(s.Flags, Flag{Code: code, Detail: detail})
}

// milliCPU and bytes return the value in the unit of the request, rounded up except for float noise.
func (s *sizer) milliCPU() units.MilliCPU { return milliUp(s.value) }
func (s *sizer) bytes() units.Bytes       { return units.Bytes(min(s.value+0.5, maxQuantity)) }

// spike flags a single day that is far above all others.
func (s *sizer) spike(values []dayValue, decisive bool) {
	highest := 0.0
	second := 0.0
	for _, v := range values {
		if v.value > highest {
			second = highest
			highest = v.value
			continue
		}

		second = max(second, v.value)
	}

	if len(values) < 3 || highest < spikeFactor*second || second == 0 {
		return
	}

	effect := "it counts, because a lack of memory ends the container"
	if !decisive {
		effect = "it does not decide alone"
	}

	s.flag(FlagSpike, fmt.Sprintf("one day of %d reached %s, all others at most %s: %s", len(values), s.unit.format(highest), s.unit.format(second), effect))
}

// history sets status, days and confidence from the days with usage, and reports whether there are enough.
func (s *sizer) history(observed float64, window, needed time.Duration) bool {
	s.Days = observed
	s.Confidence = units.Ratio(min(1, s.Days/(window.Hours()/24)))
	switch {
	case observed == 0:
		s.Status = NoData
		s.Message = "no use was measured"
		return false
	case 24*observed < enoughHistory*needed.Hours():
		s.Status = Learning
		s.Message = fmt.Sprintf("learning, %.*f of %s", decimals(s.Days), s.Days, daysText(needed))
		return false
	}

	s.Status = Ready
	return true
}

// margin adds a share of the value.
func (s *sizer) margin(margin units.Ratio, detail string) {
	if margin > 0 {
		s.step(StepMargin, s.value*(1+float64(margin)), detail)
	}
}

// utilization divides the value by the target utilization.
func (s *sizer) utilization(target units.Ratio) {
	if target < 1 {
		s.step(StepUtilization, s.value/float64(target), "the estimate has to be "+percent(target)+" of the request")
	}
}

// clamp rounds up to a multiple of unit and applies floor, ceiling and the largest node, in that order; 0 means none.
func (s *sizer) clamp(unit, floor, ceiling, node float64) {
	if rounded := roundUp(s.value, unit); rounded > s.value {
		s.step(StepRounding, rounded, "up to a multiple of "+s.unit.format(unit))
	}
	if s.value < floor {
		s.step(StepFloor, floor, "the policy's floor")
	}
	if ceiling > 0 && s.value > ceiling {
		s.step(StepCeiling, ceiling, "the policy's ceiling")
	}

	if node > 0 && s.value > node {
		s.flag(FlagTooLarge, fmt.Sprintf("%s would not fit: the largest node has %s for pods", s.unit.format(s.value), s.unit.format(node)))
		s.step(StepNode, node, "the largest node has no more for pods")
	}
}

func (s *sizer) noRequest(current float64) {
	if current <= 0 {
		s.flag(FlagNoRequest, "there is no request today: any request is more than that, so the saving is unknown")
	}
}

// scalePoint keeps request*target of an autoscaler on the same resource: the usage per pod at which it adds one. The target
// stays within the range in which autoscalers work; otherwise the request changes.
func (s *sizer) scalePoint(target units.Ratio, current float64) {
	const lowest, highest units.Ratio = 0.30, 0.90
	if target <= 0 {
		return
	}

	if current <= 0 {
		// Utilization is undefined without a request, so there is no scale point to keep.
		return
	}

	// A chosen target outside the range may stay.
	low := min(lowest, target)

	high := max(highest, target)
	point := float64(target) * current
	newTarget := point / s.value
	if clamped := min(max(newTarget, float64(low)), float64(high)); clamped != newTarget {
		s.step(StepHPA, point/clamped, fmt.Sprintf("the autoscaler acts at %s a pod; its target must stay within %s to %s of the request",
			s.unit.format(point), percent(low), percent(high)))
		newTarget = clamped
	}

	s.hpaTarget = units.Ratio(float64(int(newTarget*100+0.5)) / 100)
}

// limitOf returns the limit for the value, 0 for none, and records it. Current values are 0 if absent.
func (s *sizer) limitOf(p LimitPolicy, request, limit float64) float64 {
	// Current CPU is in millicores, the value in cores.
	if s.unit == Cores {
		request /= 1000
		limit /= 1000
	}

	to, detail := p.apply(s.value, request, limit)
	if to > 0 {
		s.Steps = append(s.Steps, Step{
			Code:   StepLimit,
			Unit:   s.unit,
			From:   limit,
			To:     to,
			Detail: detail,
		})
	}

	return to
}

// apply returns the limit of a new request and its reason; 0 for none. The current request and limit are 0 if absent.
func (p LimitPolicy) apply(value, request, limit float64) (to float64, detail string) {
	switch {
	case p.Mode == LimitEqual:
		return value, "equal to the request"
	case p.Mode == LimitHeadroom:
		return value * (1 + float64(p.Headroom)), percent(p.Headroom) + " above the request"
	case p.Mode == LimitNone || limit <= 0:
		return 0, ""

	case p.Mode == LimitKeepRatio && request > 0 && limit >= request && limit <= maxRatio*request:
		return value * limit / request, strconv.FormatFloat(limit/request, 'g', 3, 64) + " times the request, as today"
	case limit < value:
		return value, "raised to the request: a limit must not be below it"
	default:
		return limit, "as today"
	}
}

// windowDays returns the days that a decision at now may use: those that begin before now and end after the start of the
// window. The sketch of an unfinished day counts as far as it goes.
func windowDays(p *Profile, now time.Time, window time.Duration) []*Day {
	last := series.DayOf(now)
	if now.After(last.Start()) {
		last++
	}

	return p.between(series.DayOf(now.Add(-window)), last).days
}

// observedDays returns the number of days with a sample, at most the time between the first and the last one: a container that runs
// for some hours a day is known after as many days as others. If the same days of each week have samples, the days in between count
// as well, because then the container does not run on them.
func observedDays(days []*Day, hours func(*Day) uint32) float64 {
	var observed []series.Day
	first, last := time.Time{}, time.Time{}
	for _, d := range days {
		mask := hours(d)
		if mask == 0 {
			continue
		}

		if len(observed) == 0 {
			first = d.Day.Start().Add(time.Duration(bits.TrailingZeros32(mask)) * time.Hour)
		}

		last = d.Day.Start().Add(time.Duration(bits.Len32(mask)) * time.Hour)
		observed = append(observed, d.Day)
	}

	elapsed := last.Sub(first).Hours() / 24
	if repeatsWeekly(observed) {
		return elapsed
	}

	return min(float64(len(observed)), elapsed)
}

// repeatsWeekly reports whether each day is observed a week before or after as well, as far as the time between the first and the last one.
func repeatsWeekly(observed []series.Day) bool {
	const week = 7
	if n := len(observed); n == 0 || observed[n-1] < observed[0]+week {
		return false
	}

	for _, d := range observed {
		for _, other := range []series.Day{d - week, d + week} {
			if other >= observed[0] && other <= observed[len(observed)-1] && !slices.Contains(observed, other) {
				return false
			}
		}
	}

	return true
}

func floatOf[T units.MilliCPU | units.Bytes](v *T) float64 {
	if v == nil || *v < 0 {
		return 0
	}

	return float64(*v)
}

// toUnit converts cores or bytes into a pointer of the unit; nil for 0.
func toUnit[T units.MilliCPU | units.Bytes](v float64, _ T, perUnit float64) *T {
	if v <= 0 {
		return nil
	}

	out := T(min(v*perUnit+0.5, maxQuantity))
	return &out
}

func roundUp(v, unit float64) float64 {
	n := v / unit
	multiple := float64(int64(n))
	if n-multiple > 1e-9 {
		multiple++
	}

	return multiple * unit
}

// daysText formats a duration as "7 days", or in hours below two days.
func daysText(d time.Duration) string {
	if d >= 48*time.Hour {
		days := d.Hours() / 24
		return fmt.Sprintf("%.*f days", decimals(days), days)
	}

	return fmt.Sprintf("%.0f hours", d.Hours())
}

func decimals(v float64) int {
	if v == float64(int(v)) {
		return 0
	}

	return 1
}
