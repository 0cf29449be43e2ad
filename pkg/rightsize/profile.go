// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"hash/fnv"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
)

const (
	// StartupWindow is the time after its start for which a pod counts as starting: its CPU is then kept apart from steady
	// usage. Five minutes is the default of the HPA, --horizontal-pod-autoscaler-cpu-initialization-period.
	StartupWindow = 5 * time.Minute
	// maxPodsPerDay bounds the peaks of a day. Beyond it they are a fair sample of the pods, the same one for CPU and memory.
	maxPodsPerDay = 2048
)

// Usage is the usage of one pod's container over some time.
type Usage struct {
	// Pod is the name of the pod, which distinguishes a leaking replica from its siblings; empty if there is only one.
	Pod string
	// Started is the start of the container; if it is zero, all usage counts as steady.
	Started time.Time
	// Capacity is what the node, or the limit at that time with a tolerance, can give, in the unit of the series; 0 if unknown.
	// Samples above it do not count: see Plausible.
	Capacity float64
	// Limit is the CPU limit at that time, in cores; 0 if there was none or it is unknown.
	Limit float64
	// Throttling is how often the kernel throttled the container at that limit on the day; nil where it was not counted.
	Throttling *Throttling
	// Reaction is the reaction whose effect on CPU is kept by request; nil for none.
	Reaction *calibrate.Reaction
	// Series is the usage: cores for CPU, bytes for memory (working set, or anonymous memory if that is known). Gaps and
	// infinite or negative values are ignored.
	Series series.Series
}

// Profile is the usage of one container of a workload over all pods of the workload: one sketch per day in UTC. NewProfile
// returns an empty one; the zero value is not ready. A Profile is not safe for concurrent use.
type Profile struct {
	// days is sorted by day, without duplicates.
	days []*Day
}

// Day is the sketch of one day in UTC.
type Day struct {
	// Day is the date.
	Day series.Day
	// CPU holds every steady sample of every pod, in cores.
	CPU histogram.Counts
	// Reaction is the effect of a reaction on the samples of CPU, each pod on its own; nil if the order of some of them is not known.
	Reaction *calibrate.Curve
	// Memory holds every sample of every pod, in bytes.
	Memory histogram.Counts
	// Peaks holds the largest samples of each pod, which identify leaking replicas and the runs of a job; see maxPodsPerDay.
	Peaks []PodPeak
	// StartCPU is the largest CPU sample, in cores, of a starting pod; 0 if there is none.
	StartCPU float32
	// StartMemory is the largest memory sample, in bytes, of a starting pod; 0 if there is none.
	StartMemory float32
	// CPUHours and MemoryHours have bit h set if the hour h of the day has a sample.
	CPUHours, MemoryHours uint32
	// CPUTime and MemoryTime are the seconds covered by samples, over all pods.
	CPUTime, MemoryTime float64
	// AtLimit is the usage beside the CPU limits of that day.
	AtLimit AtLimit
	// ImplausibleCPU and ImplausibleMemory are the samples that do not count, because they cannot be measurements.
	ImplausibleCPU, ImplausibleMemory Implausible
	// ReclaimBasis is the basis of Unreclaimable of the peaks; the weaker one if pods differ.
	ReclaimBasis ReclaimBasis
}

// PodPeak is the largest usage of one pod on one day.
type PodPeak struct {
	// Pod is a hash of the name of the pod.
	Pod uint32
	// First is the largest memory sample of the first observed hour of the day, Peak that of the whole day, in bytes.
	First, Peak float32
	// CPU is the largest CPU sample of the day, including startup, in cores.
	CPU float32
	// Unreclaimable is the largest unreclaimable memory of the pod on that day, in bytes; see AddUnreclaimable.
	Unreclaimable float32
	// MemoryHours and UnreclaimableHours have bit h set if there is a sample of the hour h.
	MemoryHours, UnreclaimableHours uint32
}

// NewProfile returns an empty profile.
func NewProfile() *Profile { return &Profile{} }

// AddCPU adds the CPU usage of one pod, in cores, and returns the number of counted samples. Every sample must be added only
// once; the order does not matter. With a reaction, the parts of a day begin without a raise.
func (p *Profile) AddCPU(u Usage) (counted int) {
	pod := podHash(u.Pod)
	for date, part := range u.Series.Days() {
		if d := p.dayOf(date, part); d != nil {
			clock := newDayClock(date, part, u.Started).withoutWholeLife(part)
			part, dropped := Plausible(part, Cores, u.Capacity)
			d.ImplausibleCPU.merge(dropped)
			d.addReaction(d.CPU.Total(), part, clock, u.Reaction)
			d.AtLimit.add(part, u.Limit, u.Throttling)
			counted += d.addCPU(pod, part, clock)
		}
	}

	return counted
}

// AddMemory adds the memory usage of one pod, in bytes, and returns the number of counted samples. Every sample must be
// added only once; the order of pods and days does not matter.
func (p *Profile) AddMemory(u Usage) (counted int) {
	pod := podHash(u.Pod)
	for date, part := range u.Series.Days() {
		if d := p.dayOf(date, part); d != nil {
			part, dropped := Plausible(part, BytesUnit, u.Capacity)
			d.ImplausibleMemory.merge(dropped)
			counted += d.addMemory(pod, part, newDayClock(date, part, u.Started))
		}
	}

	return counted
}

// dayOf returns the sketch for a part of a series; nil if the part has no sample.
func (p *Profile) dayOf(date series.Day, part series.Series) *Day {
	for _, v := range part.Values {
		if !series.IsGap(v) {
			return p.day(date)
		}
	}

	return nil
}

// addReaction adds the effect of a reaction on a part of the samples to that on a number of others. The CPU of a starting pod is neither
// above the request nor reacted to.
func (d *Day) addReaction(others uint32, part series.Series, clock dayClock, reaction *calibrate.Reaction) {
	if reaction == nil {
		d.mergeReaction(others, nil)
		return
	}

	if clock.startFrom != clock.startTo {
		part.Values = slices.Clone(part.Values)
		for i := range part.Values {
			if clock.isStarting(i) {
				part.Values[i] = math.NaN()
			}
		}
	}

	d.mergeReaction(others, calibrate.NewCurve(part, *reaction))
}

// mergeReaction adds the effect of a reaction to that on a number of other samples; nil if it is not known.
func (d *Day) mergeReaction(others uint32, curve *calibrate.Curve) {
	switch {
	case others == 0 && curve == nil:
		d.Reaction = nil
	case others == 0:
		d.Reaction = &calibrate.Curve{}
		d.Reaction.Add(curve)
	case d.Reaction == nil || curve == nil:
		d.Reaction = nil
	default:
		d.Reaction.Add(curve)
	}
}

func (d *Day) addCPU(pod uint32, part series.Series, clock dayClock) (counted int) {
	peak := PodPeak{Pod: pod}
	measured := 0
	for i, v := range part.Values {
		if v >= 0 && v <= maxFloat32 {
			measured++
		}

		// The CPU of a start is kept apart from steady usage, but belongs to the peak of a run.
		if clock.isStarting(i) {
			if v > float64(d.StartCPU) && v <= maxFloat32 {
				d.StartCPU = float32(v)
			}
			if v > float64(peak.CPU) && v <= maxFloat32 {
				peak.CPU = float32(v)
			}

			continue
		}

		if d.CPU.Add(v) {
			d.CPUHours |= 1 << clock.hour(i)
			counted++
			peak.CPU = max(peak.CPU, float32(v))
		}
	}

	d.CPUTime += float64(measured) * part.Step.Seconds()
	if peak.CPU > 0 {
		d.addPeak(peak)
	}

	return counted
}

func (d *Day) addMemory(pod uint32, part series.Series, clock dayClock) (counted int) {
	peak := PodPeak{Pod: pod}
	firstHour := uint(0)
	for i, v := range part.Values {
		if !d.Memory.Add(v) {
			continue
		}

		hour := clock.hour(i)
		d.MemoryHours |= 1 << hour
		peak.MemoryHours |= 1 << hour

		if counted == 0 {
			firstHour = hour
		}

		counted++
		peak.Peak = max(peak.Peak, float32(v))

		// First is the maximum of the first observed hour, so its later samples raise it.
		if hour == firstHour {
			peak.First = peak.Peak
		}
		if clock.isStarting(i) {
			d.StartMemory = max(d.StartMemory, float32(v))
		}
	}

	if counted > 0 {
		d.MemoryTime += float64(counted) * part.Step.Seconds()
		d.addPeak(peak)
	}

	return counted
}

// dayClock computes the time of day of samples with integers, since it is called for every sample.
type dayClock struct {
	// offset is the time of the first sample since midnight, step the time between samples.
	offset, step time.Duration
	// startFrom and startTo bound the time since midnight at which the pod is starting; equal if it is not.
	startFrom, startTo time.Duration
}

func newDayClock(date series.Day, part series.Series, started time.Time) dayClock {
	midnight := date.Start()
	c := dayClock{offset: part.Start.Sub(midnight), step: part.Step}
	if !started.IsZero() {
		c.startFrom = started.Sub(midnight)
		c.startTo = c.startFrom + StartupWindow
	}

	return c
}

// withoutWholeLife returns a clock without a start if all samples of a part are in it: a pod that lives for less has no other usage. A part
// that ends with the day may continue.
func (c dayClock) withoutWholeLife(part series.Series) dayClock {
	n := len(part.Values)
	if n > 0 && c.isStarting(0) && c.isStarting(n-1) && c.offset+time.Duration(n)*c.step < day {
		c.startFrom = 0
		c.startTo = 0
	}

	return c
}

func (c dayClock) hour(i int) uint { return uint((c.offset+time.Duration(i)*c.step)/time.Hour) % 24 }

func (c dayClock) isStarting(i int) bool {
	sinceMidnight := c.offset + time.Duration(i)*c.step
	return sinceMidnight >= c.startFrom && sinceMidnight < c.startTo
}

// Merge adds the content of other, for example cached days. Both must not contain the same samples. other stays usable and
// shares nothing with p afterward.
func (p *Profile) Merge(other *Profile) {
	for _, source := range other.days {
		target := p.day(source.Day)
		if source.CPU.Total() > 0 {
			target.mergeReaction(target.CPU.Total(), source.Reaction)
		}

		target.CPU.Merge(&source.CPU)
		target.Memory.Merge(&source.Memory)
		target.CPUHours |= source.CPUHours
		target.MemoryHours |= source.MemoryHours
		target.StartCPU = max(target.StartCPU, source.StartCPU)
		target.StartMemory = max(target.StartMemory, source.StartMemory)

		target.CPUTime += source.CPUTime
		target.MemoryTime += source.MemoryTime
		target.AtLimit.merge(source.AtLimit)
		target.ImplausibleCPU.merge(source.ImplausibleCPU)
		target.ImplausibleMemory.merge(source.ImplausibleMemory)
		target.ReclaimBasis = max(target.ReclaimBasis, source.ReclaimBasis)
		for _, peak := range source.Peaks {
			target.addPeak(peak)
		}
	}
}

// Days returns the sketches in the order of their days. They are shared with the profile and must not be modified.
func (p *Profile) Days() []*Day {
	if p == nil {
		return nil
	}

	return p.days
}

// Window returns the sketches that a decision at now may use: those of the days that begin before now and within the window.
// They are shared with the profile and must not be modified.
func (p *Profile) Window(now time.Time, window time.Duration) []*Day {
	return windowDays(p, now, window)
}

// Compact releases unused memory. It is called once all samples have been added.
func (p *Profile) Compact() {
	for _, d := range p.days {
		d.CPU.Compact()
		d.Memory.Compact()
		d.Peaks = slices.Clip(d.Peaks)
	}
}

// between returns a view of the days from <= day < to, which shares the days with p.
func (p *Profile) between(from, to series.Day) *Profile {
	if p == nil {
		return &Profile{}
	}

	i, _ := p.search(from)
	j, _ := p.search(to)
	return &Profile{days: p.days[i:max(i, j)]}
}

func (p *Profile) search(date series.Day) (int, bool) {
	return slices.BinarySearchFunc(p.days, date, func(d *Day, date series.Day) int { return int(d.Day) - int(date) })
}

// day returns the sketch of a date and creates it if necessary.
func (p *Profile) day(date series.Day) *Day {
	if n := len(p.days); n > 0 && p.days[n-1].Day == date {
		return p.days[n-1]
	}

	i, found := p.search(date)
	if !found {
		p.days = slices.Insert(p.days, i, &Day{Day: date})
	}

	return p.days[i]
}

// addPeak merges the peak of one pod into the day.
func (d *Day) addPeak(peak PodPeak) {
	for i := range d.Peaks {
		if stored := &d.Peaks[i]; stored.Pod == peak.Pod {
			stored.merge(peak)
			return
		}
	}

	if len(d.Peaks) < maxPodsPerDay {
		d.Peaks = append(d.Peaks, peak)
		return
	}

	last := 0
	for i := range d.Peaks {
		if sampleOrder(d.Peaks[i].Pod) > sampleOrder(d.Peaks[last].Pod) {
			last = i
		}
	}

	if sampleOrder(peak.Pod) < sampleOrder(d.Peaks[last].Pod) {
		d.Peaks[last] = peak
	}
}

// isSampled reports whether the day may have more pods than peaks.
func (d *Day) isSampled() bool { return len(d.Peaks) == maxPodsPerDay }

// sampleOrder orders pods by a number that depends on their name alone, and in which similar names are far apart. The first pods in
// this order are a fair sample, and the samples of two parts of a day have the same pods.
func sampleOrder(pod uint32) uint32 {
	pod ^= pod >> 16
	pod *= 0x85ebca6b
	pod ^= pod >> 13
	pod *= 0xc2b2ae35

	return pod ^ pod>>16
}

func (p *PodPeak) merge(o PodPeak) {
	switch {
	case p.First == 0:
		p.First = o.First
	case o.First > 0:
		// Of two parts of one day the lower start is the better estimate.
		p.First = min(p.First, o.First)
	}

	p.Peak = max(p.Peak, o.Peak)
	p.CPU = max(p.CPU, o.CPU)
	p.Unreclaimable = max(p.Unreclaimable, o.Unreclaimable)
	p.MemoryHours |= o.MemoryHours
	p.UnreclaimableHours |= o.UnreclaimableHours
}

// maxPeak returns the largest memory sample of the day over all pods; 0 if there is none.
func (d *Day) maxPeak() float64 {
	if d.Memory.Total() == 0 {
		return 0
	}

	return d.Memory.Max()
}

// maxCPU returns the largest CPU sample of the day over all pods; 0 if there is none.
func (d *Day) maxCPU() float64 {
	if d.CPU.Total() == 0 {
		return float64(d.StartCPU)
	}

	return max(d.CPU.Max(), float64(d.StartCPU))
}

func podHash(pod string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod))
	return h.Sum32()
}
