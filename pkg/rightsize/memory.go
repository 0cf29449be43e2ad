// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/pkg/units"
)

const (
	// growingDays and growingFactor define growing memory: the maximum of this many days in a row is not lower than that of
	// the day before (except for noise), and the last is this much above the first.
	growingDays   = 5
	growingFactor = 1.2
	growingNoise  = 0.98
	// growingAhead is the number of days of further growth that are added, growingCap the largest factor of that.
	growingAhead = 3
	growingCap   = 1.5
)

// sizeMemory computes the memory request and reports whether there is one.
func sizeMemory(in Input, p Policy) (*sizer, bool) {
	s := &sizer{unit: BytesUnit}
	days := windowDays(in.Profile, in.Now, p.Memory.Window)
	var estimate memoryEstimate
	if in.RunsToCompletion {
		estimate = p.Memory.estimateOfRuns(days)
		if !s.runs(len(estimate.maxima)) {
			return s, false
		}
	} else {
		if !s.history(observedDays(days, func(d *Day) uint32 { return d.MemoryHours }), p.Memory.Window, p.MinHistory) {
			return s, false
		}

		estimate = p.Memory.estimate(days, in.Now)
	}

	s.Estimate = estimate.value
	s.Message = estimate.detail
	s.step(StepEstimate, max(estimate.value, estimate.cache.workingSet), estimate.detail)

	if len(estimate.leaks.pods) > 0 {
		s.flag(FlagLeak, estimate.leaks.detail)
		s.Steps = append(s.Steps, Step{
			Code:   StepLeakExcluded,
			Unit:   BytesUnit,
			From:   estimate.largest,
			To:     s.value,
			Detail: estimate.leaks.detail,
		})
	}

	s.pageCache(estimate.cache)
	s.implausible(days, func(d *Day) Implausible { return d.ImplausibleMemory })
	s.spike(estimate.maxima, true)
	s.noRequest(floatOf(in.Current.MemoryRequest))

	if s.value == 0 {
		s.flag(FlagIdle, fmt.Sprintf("no memory use above zero in %.1f days", s.Days))
	}

	if estimate.ahead > s.value {
		detail := fmt.Sprintf("the largest use of a day only grows: %d days of further growth provided for", growingAhead)
		s.flag(FlagGrowing, detail+"; a leak or a cache without a bound?")
		s.Confidence /= 2
		s.step(StepTrend, estimate.ahead, detail)
	}

	// The margin is on top of what kills and the heap require.
	s.startup(days)
	killedAt := s.oom(in, p.Memory.OOM)
	s.jvm(in.JVM)
	s.margin(estimate.margin, estimate.marginDetail)
	s.utilization(p.Memory.TargetUtilization)
	s.heapOfLimit(in, p.Memory.Limit)
	s.notBelow(killedAt)

	if in.HPA != nil && s.value > 0 {
		s.scalePoint(in.HPA.MemoryUtilization, floatOf(in.Current.MemoryRequest))
	}

	s.clamp(float64(p.Memory.Step), float64(p.Memory.Floor), float64(p.Memory.Ceiling), float64(in.MaxMemory))
	return s, true
}

// Need returns the memory that the days require, margin included, before target utilization, rounding and bounds, in the
// unit of the samples; NaN if the days have no sample.
func (p MemoryPolicy) Need(days []*Day, now time.Time) float64 {
	return p.estimate(days, now).need()
}

// memoryEstimate is the memory that usage requires and its derivation.
type memoryEstimate struct {
	value float64
	// largest is the largest sample of all replicas, including leaking ones.
	largest float64
	// ahead is the extrapolated memory; 0 if memory does not grow.
	ahead                float64
	leaks                leaks
	margin               units.Ratio
	detail, marginDetail string
	// maxima are those of the days.
	maxima []dayValue
	cache  cacheSplit
}

func (p MemoryPolicy) estimate(days []*Day, now time.Time) memoryEstimate {
	leaking := findLeaks(days)
	largest := 0.0
	n := 0
	for _, d := range days {
		if d.Memory.Total() > 0 {
			largest = max(largest, d.maxPeak())
			n++
		}
	}

	e := p.estimateWithoutCache(basisOf(days), strconv.Itoa(n)+" calendar days"+halfLifeText(p.HalfLife), func(leaveOut units.Ratio) []dayValue {
		maxima := make([]dayValue, 0, 32)
		for _, d := range days {
			if d.Memory.Total() > 0 {
				maxima = append(maxima, dayValue{d.requiredPeak(leaveOut, leaking.pods), dayWeight(now, d, p.HalfLife)})
			}
		}

		return maxima
	})

	e.leaks = leaking
	e.largest = largest
	return e
}

// estimateOfRuns returns the estimate from the peaks of runs.
func (p MemoryPolicy) estimateOfRuns(days []*Day) memoryEstimate {
	runs := func(leaveOut units.Ratio) []dayValue {
		return runPeaks(days, func(l podLife) float32 { return float32(requiredMemory(l.peak, l.unreclaimable, leaveOut)) }, (*Day).maxPeak)
	}

	return p.estimateWithoutCache(basisOf(days), fmt.Sprintf("%d runs", len(runs(0))), runs)
}

// estimateWithoutCache returns the estimate from block maxima without a share of the page cache. If the cache is known for
// some blocks only, the estimate may exceed that of the whole memory, which then counts.
func (p MemoryPolicy) estimateWithoutCache(basis ReclaimBasis, blocks string, maxima func(leaveOut units.Ratio) []dayValue) memoryEstimate {
	e := p.estimateOfMaxima(maxima(0), blocks)
	if basis == BasisUnknown || len(e.maxima) == 0 {
		return e
	}

	split := cacheSplit{basis: basis, workingSet: e.value, unreclaimable: weightedQuantile(maxima(1), float64(p.Percentile))}
	if leaveOut := p.PageCache.excludedShare(basis); leaveOut > 0 {
		reduced := p.estimateOfMaxima(maxima(leaveOut), blocks)
		if !(reduced.need() < e.need()) {
			return e
		}

		e = reduced
		split.leaveOut = leaveOut
	}

	split.needed = e.value
	e.cache = split
	return e
}

// need returns the required memory, margin included.
func (e memoryEstimate) need() float64 { return max(e.value, e.ahead) * (1 + float64(e.margin)) }

// estimateOfMaxima returns the estimate from block maxima in the order of time; of describes the blocks. It sorts maxima.
func (p MemoryPolicy) estimateOfMaxima(maxima []dayValue, blocks string) memoryEstimate {
	e := memoryEstimate{maxima: maxima}
	grows, ahead := growth(maxima)
	e.value = weightedQuantile(maxima, float64(p.Percentile))
	tail := 0.0
	if grows {
		// The maxima differ because memory grows, which ahead covers.
		e.ahead = ahead
	} else {
		tail = tailSpread(maxima) // Sorted maxima need less work.
	}

	e.margin = min(p.Margin+p.TailMargin*units.Ratio(tail), max(p.MaxMargin, p.Margin))
	e.marginDetail = percent(e.margin) + " on top"
	if p.TailMargin > 0 {
		e.marginDetail += ": the upper half of the maxima spreads by " + percent(units.Ratio(tail))
	}

	e.detail = "the maximum of " + blocks
	if p.Percentile < 1 {
		e.detail = percentile(p.Percentile) + " of the maxima of " + blocks
	}

	return e
}

// tailSpread returns the relative spread of the upper half of the values: the mean of their logarithms above that of the
// value below them (Hill's estimator of a tail). If the tail is exponential in the logarithm, the next value exceeds the
// largest of n by more than y with probability exp(-y/tailSpread)/(n+1).
func tailSpread(values []dayValue) float64 {
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
	upper := len(logs) / 2
	base := logs[len(logs)-upper-1]
	sum := 0.0
	for _, v := range logs[len(logs)-upper:] {
		sum += v - base
	}

	return sum / float64(upper)
}

// growth reports whether the maxima, in the order of their days, only grow, and extrapolates them.
func growth(maxima []dayValue) (grows bool, ahead float64) {
	days := 1
	for i := len(maxima) - 1; i > 0 && maxima[i].value >= growingNoise*maxima[i-1].value; i-- {
		days++
	}

	if days < growingDays {
		return false, 0
	}

	first := maxima[len(maxima)-days].value
	last := maxima[len(maxima)-1].value
	if !(first > 0) || last < growingFactor*first {
		return false, 0
	}

	// Both halves must have grown, or it was one step to a new level.
	if middle := maxima[len(maxima)-1-days/2].value; middle < first+(last-first)/4 || middle > last-(last-first)/4 {
		return false, 0
	}

	return true, min(last+growingAhead*(last-first)/float64(days-1), growingCap*last)
}

// oom raises the value by the out-of-memory kills of the window, and returns the memory below which the request must not fall.
// Each kill requires a bump above the limit at which it happened. The bump decreases with the age of the kill, but a kill
// proves that the need was at least the limit, so that part stays. The cap counts from the lowest memory that was killed, so
// that a loop of kill and bump ends: further growth shows in the usage itself, or is a leak.
func (s *sizer) oom(in Input, p OOMPolicy) (floor float64) {
	if !p.Enabled {
		return 0
	}

	if in.UnknownKills != "" {
		floor = floatOf(in.Current.MemoryRequest)
		s.flag(FlagOOM, "whether it was killed for lack of memory is unknown, so that its request is not lowered: "+in.UnknownKills)
	}

	var bounds []OOM
	withoutLimit := 0

	lowest := math.Inf(1)
	kills := p.counted(in)
	for _, kill := range kills {
		if kill.NoLimit {
			withoutLimit++
			continue
		}

		if kill.LimitUnknown {
			floor = max(floor, floatOf(in.Current.MemoryRequest))
		}
		if kill.Memory > 0 {
			bounds = append(bounds, kill)
			lowest = min(lowest, float64(kill.Memory))
			floor = max(floor, float64(kill.Memory))
		}
	}

	if len(kills) == 0 {
		return floor
	}

	// The kill that requires most decides; kills do not add up.
	ceiling := float64(p.Cap) * max(lowest, s.value)

	raised := s.value
	cause := OOM{}
	capped := false
	for _, kill := range bounds {
		m := float64(kill.Memory)
		required := max(m*float64(p.Ratio), m+float64(p.MinBump))

		target := min(required, ceiling)
		if p.HalfLife > 0 && target > s.value {
			age := max(0, in.Now.Sub(kill.At))
			target = s.value + (target-s.value)*math.Exp2(-float64(age)/float64(p.HalfLife))
		}

		target = max(target, min(m, ceiling))
		if target > raised {
			raised = target
			cause = kill
			capped = required > ceiling
		}
	}

	detail := fmt.Sprintf("killed for lack of memory %d times in %s", len(kills), daysText(p.Window))
	if withoutLimit > 0 {
		detail += fmt.Sprintf("; %d times without a limit of its own: the node or the pod was out of memory, which does not bound the need", withoutLimit)
	}
	if capped {
		detail += fmt.Sprintf("; no more than %s is given for that: look for a leak", s.unit.format(ceiling))
	}

	s.flag(FlagOOM, detail)
	if raised > s.value {
		s.step(StepOOM, raised, fmt.Sprintf("killed at %s, %s ago", s.unit.format(float64(cause.Memory)), in.Now.Sub(cause.At).Round(time.Hour)))
	}

	return floor
}

// counted returns the kills within the window. Those after now do not count, except for a difference between clocks.
func (p OOMPolicy) counted(in Input) []OOM {
	const maxClockSkew = time.Minute

	var out []OOM
	for _, kill := range in.OOMs {
		age := in.Now.Sub(kill.At)
		if age < -maxClockSkew || age > p.Window || kill.Memory <= 0 && !kill.NoLimit && !kill.LimitUnknown {
			continue
		}

		out = append(out, kill)
	}

	return out
}

// RequestOfKills returns the memory request that the kills of a container require whatever it used, as Recommend computes it, and the kill
// with the most memory that bounds the need; 0 if there is none.
func RequestOfKills(in Input, p MemoryPolicy) (request units.Bytes, largest OOM) {
	for _, kill := range p.OOM.counted(in) {
		if !kill.NoLimit && (largest.At.IsZero() || kill.Memory > largest.Memory) {
			largest = kill
		}
	}

	s := &sizer{unit: BytesUnit}
	killedAt := s.oom(in, p.OOM)
	s.margin(p.Margin, "")
	s.utilization(p.TargetUtilization)
	s.notBelow(killedAt)
	if s.value == 0 {
		return 0, OOM{}
	}

	s.clamp(float64(p.Step), float64(p.Floor), float64(p.Ceiling), float64(in.MaxMemory))
	return s.bytes(), largest
}

// notBelow raises the value to the largest limit at which the container was killed: the cap and the decay of kills end a
// loop, but a smaller container would be killed again.
func (s *sizer) notBelow(killedAt float64) {
	if killedAt > s.value {
		s.step(StepOOM, killedAt, "not below the memory at which it was killed; look for a leak if it only grows")
	}
}

// startup flags memory that is only used at the start. The request holds it all the same: a start that does not fit is
// killed.
func (s *sizer) startup(days []*Day) {
	start := startPeak(days, func(d *Day) float32 { return d.StartMemory })
	if start < s.Estimate || start == 0 {
		return
	}

	if steady := quantileOf(days, memoryCounts, 0.99); startupFactor*steady < start {
		s.flag(FlagStartup, fmt.Sprintf("starting took up to %s, 99 %% of all use stays below %s", s.unit.format(start), s.unit.format(steady)))
	}
}

// jvm keeps the container large enough for the maximum heap of the JVM: lower usage does not mean that less is sufficient,
// because the collector grows into the available heap.
func (s *sizer) jvm(j *JVM) {
	// heapHeadroom is kept above the live heap if the heap follows the limit.
	const heapHeadroom = 1.3

	if j == nil {
		return
	}

	if j.MaxHeap > 0 && j.MaxRAMPercentage == 0 {
		if required, detail := j.fixedHeap(s.value); required > s.value {
			s.step(StepJVM, required, detail)
		}
	}

	if j.MaxRAMPercentage > 0 && j.PeakHeap > 0 {
		if required := heapHeadroom * float64(j.PeakHeap) / float64(j.MaxRAMPercentage); required > s.value {
			s.step(StepJVM, required, fmt.Sprintf("the heap is %s of the limit; live data of %s and headroom need that much", percent(j.MaxRAMPercentage), formatBytes(float64(j.PeakHeap))))
		}
	}
}

// fixedHeap returns the memory of the maximum heap and of what lies outside of it, at a value for the whole container.
func (j *JVM) fixedHeap(value float64) (required float64, detail string) {
	// nonHeap is the share of the heap that threads, classes and buffers need, unless it was measured.
	const nonHeap = 0.25

	outside := nonHeap * float64(j.MaxHeap)
	if j.PeakHeap > 0 && value > float64(j.PeakHeap) {
		outside = min(outside, value-float64(j.PeakHeap))
	}

	return float64(j.MaxHeap) + outside, fmt.Sprintf("the heap may grow to %s, and %s lies outside of it", formatBytes(float64(j.MaxHeap)), formatBytes(outside))
}

// heapOfLimit keeps the limit large enough for a heap of which it is not known whether it has a fixed size or follows the limit. It is not
// raised above the current limit, in which the heap lives: a heap that follows the limit would then grow with each recommendation.
func (s *sizer) heapOfLimit(in Input, limit LimitPolicy) {
	j := in.JVM
	if j == nil || j.MaxHeap == 0 || j.MaxRAMPercentage == 0 {
		return
	}

	required, detail := j.fixedHeap(s.value)
	current := floatOf(in.Current.MemoryLimit)
	if current > 0 {
		required = min(required, current)
	}

	value := raiseToLimit(s.value, func(request float64) float64 {
		to, _ := limit.apply(request, floatOf(in.Current.MemoryRequest), current)
		if to == 0 {
			return request // Without a limit, the request has to hold the heap.
		}

		return to
	}, required)
	if value > s.value {
		s.step(StepJVM, value, detail)
	}
}

// applySpecification moves both values to the smallest specification that holds them; nothing changes if there is none.
func applySpecification(specs []Specification, cpu, memory *sizer) {
	smallest := -1
	for i, spec := range specs {
		if float64(spec.CPU) < cpu.value*1000-1e-6 || float64(spec.Memory) < memory.value-0.5 {
			continue
		}

		if smallest < 0 || spec.CPU < specs[smallest].CPU || spec.CPU == specs[smallest].CPU && spec.Memory < specs[smallest].Memory {
			smallest = i
		}
	}

	if smallest < 0 {
		detail := "no specification is large enough: left as it is"
		cpu.step(StepSpecification, cpu.value, detail)
		memory.step(StepSpecification, memory.value, detail)

		return
	}

	detail := fmt.Sprintf("the smallest specification that holds both: %s and %s", units.FormatCPU(specs[smallest].CPU), units.FormatMemory(specs[smallest].Memory))
	cpu.step(StepSpecification, float64(specs[smallest].CPU)/1000, detail)
	memory.step(StepSpecification, float64(specs[smallest].Memory), detail)
}

// maxPeakWithout returns maxPeak without some pods; there must be others.
func (d *Day) maxPeakWithout(pods map[uint32]bool) float64 {
	if len(pods) == 0 {
		return d.maxPeak()
	}

	peak := float32(0)
	for _, p := range d.Peaks {
		if !pods[p.Pod] {
			peak = max(peak, p.Peak)
		}
	}

	return float64(peak)
}
