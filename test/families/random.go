// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package families

import (
	"math"
	"math/rand/v2"
	"time"

	"crane.io/crane/pkg/series"
)

// Random returns a series of a number of days whose shape is drawn at random: a daily profile of bumps or of runs at fixed hours, weekends,
// days that differ, drift, noise with and without memory, spikes, level shifts, odd days, outages, growth that ends in
// restarts, and steps.
func Random(seed uint64, days int, step time.Duration) series.Series {
	r := rand.New(rand.NewPCG(seed, 29))
	p := drawProfile(r)
	out := series.Series{Start: start().Add(time.Duration(r.IntN(7*24*60)) * time.Minute), Step: step}
	out.Values = make([]float64, int(time.Duration(days)*24*time.Hour/step))
	for i := range out.Values {
		out.Values[i] = p.at(r, out.Time(i), step.Hours())
	}

	return out
}

// bump is a part of the load of a day.
type bump struct {
	hour, hours, height float64
	square              bool
}

// profile holds the parameters of a random series and its state from one sample to the next.
type profile struct {
	base                  float64
	bumps                 []bump
	weekdays              [7]float64
	dayNoise, dayMemory   float64 // of the levels of days
	noise                 float64 // of each sample
	slowNoise, slowHours  float64 // of noise with a memory
	spikes, spikeHeight   float64 // a day
	shifts, shiftSize     float64 // a day
	trend                 float64 // a day
	growth, restarts      float64 // a day
	outages, outageHours  float64 // a day; their mean length
	oddDays, oddLevel     float64 // share of days that are odd; the load of these
	jitter                float64 // hours by which a day's bumps move
	additive              bool    // levels are added to the profile
	unit                  float64 // values are multiples of it; 0 for any
	dayLevel, slow, level float64
	grown, moved, odd     float64
	out                   float64 // hours that are left of an outage
	day                   int
}

func drawProfile(r *rand.Rand) *profile {
	some := func(share float64, f func() float64) float64 {
		if r.Float64() < share {
			return f()
		}

		return 0
	}

	between := func(low, high float64) func() float64 {
		return func() float64 { return low * math.Pow(high/low, r.Float64()) }
	}
	p := &profile{
		base:        between(0.02, 2)(),
		noise:       between(0.01, 0.5)(),
		dayNoise:    some(0.6, between(0.02, 0.4)),
		dayMemory:   []float64{0, 0.5, 0.9}[r.IntN(3)],
		slowNoise:   some(0.6, between(0.03, 0.6)),
		slowHours:   between(0.3, 24)(),
		spikes:      some(0.4, between(0.3, 30)),
		spikeHeight: between(0.3, 10)(),
		shifts:      some(0.4, between(0.05, 0.4)),
		shiftSize:   between(0.1, 1.2)(),
		trend:       some(0.3, func() float64 { return 0.04 * r.NormFloat64() }),
		growth:      some(0.15, between(0.05, 1)),
		restarts:    between(0.1, 2)(),
		jitter:      some(0.3, between(0.1, 2)),
		additive:    r.IntN(4) == 0,
		outages:     some(0.1, between(0.1, 0.5)),
		outageHours: between(0.3, 8)(),
		oddDays:     some(0.1, between(0.03, 0.2)),
		oddLevel:    between(0.05, 6)(),
		unit:        some(0.15, between(0.02, 0.5)),
		day:         math.MinInt,
		level:       1,
	}

	for range r.IntN(5) {
		p.bumps = append(p.bumps, bump{24 * r.Float64(), between(0.2, 8)(), between(0.2, 5)(), r.IntN(3) == 0})
	}

	if r.IntN(6) == 0 { // the same each few hours
		every := []float64{1, 2, 4, 6, 8, 12}[r.IntN(6)]
		shape := bump{every * r.Float64(), between(0.1, 0.5)() * every, between(0.2, 5)(), r.IntN(2) == 0}
		p.bumps = nil
		for at := 0.0; at < 24; at += every {
			p.bumps = append(p.bumps, bump{shape.hour + at, shape.hours, shape.height, shape.square})
		}
	}

	weekend := 1.0
	if r.IntN(2) == 0 {
		weekend = between(0.1, 1.3)()
	}

	each := some(0.2, between(0.05, 0.6))
	for d := range p.weekdays {
		p.weekdays[d] = math.Exp(each * r.NormFloat64())
		if d == 0 || d == 6 {
			p.weekdays[d] *= weekend
		}
	}

	return p
}

func (p *profile) at(r *rand.Rand, t time.Time, hours float64) float64 {
	// Each day draws its level, its delay and whether it is an odd one.
	if d := int(t.Unix() / 86400); d != p.day {
		p.day = d
		p.dayLevel = p.dayMemory*p.dayLevel + math.Sqrt(1-p.dayMemory*p.dayMemory)*p.dayNoise*r.NormFloat64()
		p.moved = p.jitter * r.NormFloat64()
		p.odd = 1
		if r.Float64() < p.oddDays {
			p.odd = p.oddLevel
		}
	}

	// A level that wanders slowly, drifts, and now and then shifts for good.
	keep := math.Exp(-hours / p.slowHours)

	p.slow = keep*p.slow + math.Sqrt(1-keep*keep)*p.slowNoise*r.NormFloat64()
	p.level *= math.Exp(p.trend * hours / 24)
	if r.Float64() < p.shifts*hours/24 {
		p.level *= math.Exp(p.shiftSize * r.NormFloat64())
	}

	p.level = min(20, max(0.05, p.level))
	p.grown += p.growth * hours / 24
	if r.Float64() < p.restarts*hours/24 {
		p.grown = 0
	}

	// The shape of the day: the sum of its bumps, moved by the jitter of the day.
	load := 0.0

	hour := float64(t.Unix()%86400) / 3600
	for _, b := range p.bumps {
		d := math.Abs(math.Remainder(hour-b.hour-p.moved, 24)) / b.hours
		switch {
		case !b.square:
			load += b.height * math.Exp(-2*d*d)
		case d < 0.5:
			load += b.height
		}
	}

	level := p.level * math.Exp(p.dayLevel+p.slow)
	v := (p.base + p.weekdays[t.Weekday()]*load) * level
	if p.additive {
		v = p.base*level + p.weekdays[t.Weekday()]*load
	}

	v = v*math.Exp(p.noise*r.NormFloat64()) + p.grown*p.base
	if r.Float64() < p.spikes*hours/24 {
		v += p.spikeHeight * r.ExpFloat64()
	}

	// Outages come last: during one there is no load at all.
	v *= p.odd

	if p.out -= hours; p.out > 0 {
		return 0
	}

	if r.Float64() < p.outages*hours/24 {
		p.out = p.outageHours * r.ExpFloat64()
	}
	if p.unit > 0 {
		v = p.unit * math.Round(v/p.unit)
	}

	return v
}
