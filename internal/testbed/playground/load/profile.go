// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"time"
)

// Kind is the shape of a container's use.
type Kind string

// The kinds of the generator.
const (
	// Daily follows the time of day, alike on all days.
	Daily Kind = "daily"
	// Weekly follows the time of day and is low on Saturday and Sunday.
	Weekly Kind = "weekly"
	// Bursty is low but for bursts of some minutes, several a day.
	Bursty Kind = "bursty"
	// Leak is Flat in CPU; its memory grows until the limit kills it.
	Leak Kind = "leak"
	// Shift is Daily around a level that jumps every nine days.
	Shift Kind = "shift"
	// Idle does next to nothing.
	Idle Kind = "idle"
	// Batch works some hours of each night and rests otherwise.
	Batch Kind = "batch"
	// Run works as long as it lives, as the container of a Job.
	Run Kind = "run"
	// Flat is a level with noise.
	Flat Kind = "flat"
	// Cache is Daily in CPU and fills its memory with files that it reads, within half a day of its start.
	Cache Kind = "cache"
	// Java is Daily in CPU; its heap grows by steps and is not given back.
	Java Kind = "java"
	// Replay plays a trace.
	Replay Kind = "trace"
)

const (
	minute      = 60.0
	hour        = 3600.0
	patternDay  = 24 * hour
	patternWeek = 7 * patternDay
	// page is what memory is counted in.
	page = 4096
	// shiftEvery is the time between two levels of Shift.
	shiftEvery = 9 * patternDay
	// burstPeak is the height of the tallest burst over High.
	burstPeak = 1.0
)

// Profile is what one container of a workload uses.
type Profile struct {
	Kind Kind
	// Seed differs from container to container.
	Seed uint64
	// Low and High are the cores at rest and at the height of the shape, before noise.
	Low, High float64
	// PeakHour of the day, UTC, and Weekend, the share of the weekday's use that remains on Saturday and Sunday.
	PeakHour, Weekend float64
	// Noise is the relative size of the noise around the shape.
	Noise float64
	// Memory is the working set at rest and Busy what comes on top at the height of the shape, in bytes.
	Memory, Busy float64
	// Grow is what Cache, Java and Leak add with age, in bytes; Leak reaches it after Life.
	Grow float64
	// Life is the pattern time in which a Leak reaches its limit; 0 for every other kind.
	Life time.Duration
	// Bandwidth is what the container receives and sends, in bytes for each second of CPU.
	Bandwidth float64
	// Trace replaces the shape of CPU or of memory where Kind is Replay.
	Trace *Trace
}

// cpu returns the cores that a pod's container wants at pattern second s. The pod's key sets it apart from its siblings.
func (p *Profile) cpu(pod uint64, s float64) float64 {
	if p.Kind == Replay && p.Trace.Resource == CPU {
		return p.Trace.at(s)
	}
	level := p.level(s)
	share := 0.88 + 0.24*unit(mix(p.Seed, pod)) // load balancers are never fair
	base := p.Low + (p.High-p.Low)*level
	key := mix(p.Seed, pod, 1)
	rough := bell(mix(key, uint64(int64(math.Floor(s/minute)))))
	noise := 1 + p.Noise*(1.6*drift(key, s, 17*minute)+1.2*rough)
	use := base*share*noise + p.High*p.bursts(pod, s)
	return math.Max(use, p.Low*0.2)
}

// level is the shape in [0, 1].
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
		into := math.Mod(s-from+patternWeek, patternDay)
		if into >= 0 && into < (1.5+2*unit(mix(p.Seed, 7)))*hour {
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

// daily is a day's course in [0, 1] that differs a little from day to day.
func (p *Profile) daily(s float64) float64 {
	angle := 2 * math.Pi * (s/hour - p.PeakHour) / 24
	wave := 0.5 + 0.38*math.Cos(angle) + 0.12*math.Cos(2*angle)
	return math.Min(1, math.Max(0, wave*(1+0.12*drift(mix(p.Seed, 2), s, patternDay))))
}

// weekend falls to the share of Saturday and Sunday and rises again, within two hours around midnight.
func (p *Profile) weekend(s float64) float64 {
	// The Unix epoch was a Thursday: Saturday begins two days into its week.
	into := math.Mod(s-2*patternDay, patternWeek)
	if into < 0 {
		into += patternWeek
	}
	edge := func(x float64) float64 { return math.Min(1, math.Max(0, x/(2*hour)+0.5)) }
	inside := math.Min(edge(into), edge(2*patternDay-into))
	if into > 6*patternDay {
		inside = edge(into - patternWeek)
	}
	return 1 - (1-p.Weekend)*inside
}

// bursts is what a burst adds at the moment, as a share of High. Each half hour may hold one; other kinds than Bursty
// have a small one every other day.
func (p *Profile) bursts(pod uint64, s float64) float64 {
	chance, size := 0.01, 0.25
	switch p.Kind {
	case Bursty:
		chance, size = 0.15, burstPeak
	case Idle, Run, Replay:
		return 0
	}
	slot := math.Floor(s / (30 * minute))
	h := mix(p.Seed, 3, uint64(int64(slot)))
	if unit(h) >= chance {
		return 0
	}
	length := between(mix(h, 1), 2, 12) * minute
	begin := between(mix(h, 2), 0, 1) * (30*minute - length)
	into := s - slot*30*minute - begin
	if into < 0 || into >= length {
		return 0
	}
	// A burst reaches each pod of the workload, though not alike.
	return size * between(mix(h, 4), 0.4, 1) * between(mix(h, pod), 0.7, 1)
}

// memory returns the working set in bytes at pattern second s of a container that has run for age pattern seconds.
func (p *Profile) memory(pod uint64, s, age float64) float64 {
	if p.Kind == Replay && p.Trace.Resource == Memory {
		return p.Trace.at(s)
	}
	age = math.Max(0, age)
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
		// A third of the growth with each step; the steps come further and further apart.
		steps := math.Min(3, math.Floor(math.Log2(1+age/(2*hour))))
		use += p.Grow * steps / 3
	}
	return math.Ceil(math.Max(use, page)/page) * page
}

// cache returns the bytes of page cache of a container that has run for age pattern seconds: what Cache grows by are files
// that it reads again and again.
func (p *Profile) cache(age float64) float64 {
	if p.Kind != Cache {
		return 0
	}
	return p.Grow * (1 - math.Exp(-math.Max(0, age)/(6*hour)))
}

// leak grows evenly, so that the limit (Memory + Grow) is passed when the run is Life old, not before.
func (p *Profile) leak(pod uint64, age float64) float64 {
	life := p.Life.Seconds()
	saw := 0.01 * math.Abs(bell(mix(p.Seed, pod, 6, uint64(int64(age/minute)))))
	return p.Memory + p.Grow*(age/life-saw*math.Min(1, age/life))*1.0001
}

// peak bounds what a container ever wants: cores and bytes.
func (p *Profile) peak() (cores, bytes float64) {
	cores = p.High*1.12*(1+p.Noise*(1.6+1.2)) + p.High*burstPeak
	bytes = p.Memory*1.06 + p.Busy + p.Grow
	if p.Kind == Replay {
		if p.Trace.Resource == CPU {
			cores = p.Trace.Peak()
		} else {
			bytes = p.Trace.Peak()
		}
	}
	return cores, bytes
}
