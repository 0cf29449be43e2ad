// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"hash/fnv"
	"math"
	"time"

	"crane.io/crane/pkg/units"
)

// Kind is the shape of a container's use over time.
type Kind string

// The kinds of the generator.
const (
	// Daily follows the time of day, equally on all days.
	Daily Kind = "daily"
	// Weekly follows the time of day and is low on Saturday and Sunday.
	Weekly Kind = "weekly"
	// Bursty is low except for bursts of some minutes, several a day.
	Bursty Kind = "bursty"
	// Leak is Flat in CPU; its memory grows until it is OOM-killed at its limit.
	Leak Kind = "leak"
	// Shift is Daily around a level that changes every nine days.
	Shift Kind = "shift"
	// Idle uses almost nothing.
	Idle Kind = "idle"
	// Batch is busy for some hours of each night and idle otherwise.
	Batch Kind = "batch"
	// Run is busy all its life, like the container of a Job.
	Run Kind = "run"
	// Flat is a constant level with noise.
	Flat Kind = "flat"
	// Cache is Daily in CPU and fills its memory with page cache within half a day of its start.
	Cache Kind = "cache"
	// Java is Daily in CPU; its heap grows by steps and never shrinks.
	Java Kind = "java"
	// Replay replays a trace.
	Replay Kind = "trace"
)

const (
	minute      = 60.0
	hour        = 3600.0
	patternDay  = 24 * hour
	patternWeek = 7 * patternDay
	// page is the page size in bytes.
	page = 4096
	// shiftEvery is the time between two levels of Shift.
	shiftEvery = 9 * patternDay
	// burstPeak is the size of the largest burst as a multiple of High.
	burstPeak = 1.0
)

// Profile describes the use of one container of a workload.
type Profile struct {
	Kind Kind
	// Seed is distinct for each container.
	Seed uint64
	// Low and High are the cores at the minimum and maximum of the shape, before noise.
	Low, High float64
	// PeakHour is the hour of the daily maximum in UTC, Weekend the ratio of use on Saturday and Sunday to that of
	// weekdays.
	PeakHour, Weekend float64
	// Noise is the relative amplitude of the noise.
	Noise float64
	// Memory is the working set in bytes at the minimum of the shape, Busy the additional bytes at its maximum.
	Memory, Busy float64
	// Grow is the memory in bytes that Cache, Java and Leak add with age; Leak reaches it after Life.
	Grow float64
	// Life is the pattern time in which a Leak reaches its limit; 0 for every other kind.
	Life time.Duration
	// Bandwidth is the number of bytes received per CPU second.
	Bandwidth float64
	// Trace replaces the shape of CPU or memory if Kind is Replay.
	Trace *Trace
}

// cpu returns the cores that a pod's container demands at pattern second s. The pod's key makes replicas differ.
func (p *Profile) cpu(pod uint64, s float64) float64 {
	if p.Kind == Replay && p.Trace.Resource == units.CPU {
		return p.Trace.at(s)
	}

	level := p.level(s)
	share := 0.88 + 0.24*unit(mix(p.Seed, pod)) // load balancing is uneven
	base := p.Low + (p.High-p.Low)*level
	key := mix(p.Seed, pod, 1)
	rough := bell(mix(key, uint64(int64(math.Floor(s/minute)))))
	noise := 1 + p.Noise*(1.6*drift(key, s, 17*minute)+1.2*rough)
	use := base*share*noise + p.High*p.bursts(pod, s)

	return math.Max(use, p.Low*0.2)
}

// level returns the shape in [0, 1].
func (p *Profile) level(s float64) float64 {
	switch p.Kind {
	case Weekly:
		return p.daily(s) * p.weekend(s)
	case Shift:
		k := uint64(int64(math.Floor((s + shiftEvery*unit(p.Seed)) / shiftEvery)))
		steps := [...]float64{0.35, 0.9, 0.5, 1}
		return steps[(k+p.Seed)%uint64(len(steps))] * (0.6 + 0.4*p.daily(s))

	case Batch:
		from := p.PeakHour * hour
		elapsed := math.Mod(s-from+patternWeek, patternDay)
		if elapsed >= 0 && elapsed < (1.5+2*unit(mix(p.Seed, 7)))*hour {
			return 1
		}

		return 0

	case Run:
		return 1
	case Leak, Flat, Bursty, Idle, Replay:
		return 0.5
	default:
		return p.daily(s)
	}
}

// daily returns the shape of a day in [0, 1] with small differences from day to day.
func (p *Profile) daily(s float64) float64 {
	angle := 2 * math.Pi * (s/hour - p.PeakHour) / 24
	wave := 0.5 + 0.38*math.Cos(angle) + 0.12*math.Cos(2*angle)
	return math.Min(1, math.Max(0, wave*(1+0.12*drift(mix(p.Seed, 2), s, patternDay))))
}

// weekend returns 1 on weekdays and Weekend on Saturday and Sunday, with a transition of two hours around midnight.
func (p *Profile) weekend(s float64) float64 {
	// The Unix epoch was a Thursday: Saturday begins two days into its week.
	sinceSaturday := math.Mod(s-2*patternDay, patternWeek)
	if sinceSaturday < 0 {
		sinceSaturday += patternWeek
	}

	edge := func(x float64) float64 { return math.Min(1, math.Max(0, x/(2*hour)+0.5)) }
	inside := math.Min(edge(sinceSaturday), edge(2*patternDay-sinceSaturday))
	if sinceSaturday > 6*patternDay {
		inside = edge(sinceSaturday - patternWeek)
	}

	return 1 - (1-p.Weekend)*inside
}

// bursts returns the current burst as a share of High. Each half hour may contain one; kinds other than Bursty have a
// small one every other day.
func (p *Profile) bursts(pod uint64, s float64) float64 {
	chance, size := 0.01, 0.25
	switch p.Kind {
	case Bursty:
		chance = 0.15
		size = burstPeak
	case Idle, Run, Replay:
		return 0
	}

	// The hash of the slot decides whether it contains a burst, and when.
	slot := math.Floor(s / (30 * minute))

	h := mix(p.Seed, 3, uint64(int64(slot)))
	if unit(h) >= chance {
		return 0
	}

	length := between(mix(h, 1), 2, 12) * minute
	begin := between(mix(h, 2), 0, 1) * (30*minute - length)
	elapsed := s - slot*30*minute - begin
	if elapsed < 0 || elapsed >= length {
		return 0
	}

	// A burst affects all pods of the workload, with different sizes.
	return size * between(mix(h, 4), 0.4, 1) * between(mix(h, pod), 0.7, 1)
}

// memory returns the working set in bytes at pattern second s of a container that has run for age pattern seconds.
func (p *Profile) memory(pod uint64, s, age float64) float64 {
	if p.Kind == Replay && p.Trace.Resource == units.Memory {
		return p.Trace.at(s)
	}

	age = math.Max(0, age)

	// A container warms up for some minutes after its start.
	key := mix(p.Seed, pod, 5)
	base := p.Memory * (0.96 + 0.08*unit(key))
	warm := 1 - 0.4*math.Exp(-age/(3*minute))

	use := base*warm + p.Busy*p.level(s) + base*0.012*drift(key, s, 11*minute) + base*0.004*bell(mix(key, uint64(int64(s/minute))))
	switch p.Kind {
	case Cache:
		use += p.cache(age)
	case Leak:
		use = p.leak(pod, age)
	case Java:
		// Each of three steps adds a third of the growth, at increasing intervals.
		steps := math.Min(3, math.Floor(math.Log2(1+age/(2*hour))))
		use += p.Grow * steps / 3
	}

	return math.Ceil(math.Max(use, page)/page) * page
}

// cache returns the bytes of page cache of a container that has run for age pattern seconds: the growth of Cache is
// active page cache.
func (p *Profile) cache(age float64) float64 {
	if p.Kind != Cache {
		return 0
	}

	return p.Grow * (1 - math.Exp(-math.Max(0, age)/(6*hour)))
}

// leak returns the memory of a leak, which grows linearly and exceeds the limit (Memory + Grow) when the run is Life
// old, not before.
func (p *Profile) leak(pod uint64, age float64) float64 {
	life := p.Life.Seconds()
	saw := 0.01 * math.Abs(bell(mix(p.Seed, pod, 6, uint64(int64(age/minute)))))
	return p.Memory + p.Grow*(age/life-saw*math.Min(1, age/life))*1.0001
}

// peak returns upper bounds of a container's demand in cores and bytes.
func (p *Profile) peak() (cores, bytes float64) {
	cores = p.High*1.12*(1+p.Noise*(1.6+1.2)) + p.High*burstPeak
	bytes = p.Memory*1.06 + p.Busy + p.Grow
	if p.Kind == Replay {
		if p.Trace.Resource == units.CPU {
			cores = p.Trace.Peak()
		} else {
			bytes = p.Trace.Peak()
		}
	}

	return cores, bytes
}

// mix hashes numbers (the finalizer of splitmix64, chained). The result is the same on every machine.
func mix(parts ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, p := range parts {
		h ^= p
		h += 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}

	return h
}

// hashString returns the FNV-1a hash of a string.
func hashString(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // a hash.Hash never fails
	return h.Sum64()
}

// unit maps a hash to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// between maps a hash to [low, high).
func between(h uint64, low, high float64) float64 { return low + (high-low)*unit(h) }

// bell maps a hash to (-1, 1) with a triangular distribution around 0 and a standard deviation of 0.41.
func bell(h uint64) float64 { return unit(h) + unit(mix(h)) - 1 }

// drift returns smooth noise in (-1, 1) at second s: it interpolates random values that are period seconds apart.
func drift(key uint64, s, period float64) float64 {
	k := math.Floor(s / period)
	f := s/period - k
	f = f * f * (3 - 2*f)

	return bell(mix(key, uint64(int64(k))))*(1-f) + bell(mix(key, uint64(int64(k))+1))*f
}
