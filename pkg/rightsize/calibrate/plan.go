// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// ErrShortHistory is returned, wrapped, if there are too few days for a plan.
var ErrShortHistory = errors.New("too little history")

// ErrIdle is returned if the days have no usage above zero that a plan could be made of.
var ErrIdle = errors.New("no usage above zero")

// Plan is the requests of a day.
type Plan struct {
	// Requests are those of the blocks of the day in UTC, in the unit of the usage; finite and above zero.
	Requests []float64
	// Block is the length of a block.
	Block time.Duration
	// Reaction is the reaction that the replay assumed; nil for none.
	Reaction *Reaction
	Calibration
}

// Calibration is the result of the replay of the past days.
type Calibration struct {
	// Target is the share of the time that usage may exceed the request; Achieved is that share in the replay.
	Target   units.Ratio `json:"target"`
	Achieved units.Ratio `json:"achieved"`
	// Multiplier was chosen: the cheapest one that met the target, or, if none did, the one closest to it with requests near the usage. With
	// a reaction a small multiplier may cost more than a larger one, because it is raised more often.
	Multiplier float64 `json:"multiplier"`
	// WholeDay is set if one request for the whole day was cheaper than requests by block.
	WholeDay bool `json:"wholeDay,omitempty"`
	// NewestDays is set to the number of newest days whose quantile the multiplier applies to, if that was cheaper than that of all days.
	NewestDays int `json:"newestDays,omitempty"`
	// Days is the number of replayed days.
	Days int `json:"days"`
	// Reaction is set if requests were raised within the day in the replay.
	Reaction bool `json:"reaction,omitempty"`
	// Points has the results of all multipliers of the chosen shape, in ascending order.
	Points []Point `json:"points"`
}

// Point is the result of one multiplier.
type Point struct {
	Multiplier float64 `json:"multiplier"`
	// Violation is the share of the time above the request.
	Violation units.Ratio `json:"violation"`
	// Request is the mean request.
	Request float64 `json:"request"`
}

// ReplayText names the replay: "the replay of 12 days, with raises within the day".
func (c Calibration) ReplayText() string {
	text := fmt.Sprintf("the replay of %d days", c.Days)
	if c.Reaction {
		text += ", with raises within the day"
	}

	return text
}

// Met reports whether the replay met the target.
func (c Calibration) Met() bool { return c.Achieved <= c.Target }

// Plan returns the requests of a day, which follows the last one that was added. It returns ErrShortHistory or ErrIdle,
// wrapped, if there is no plan.
func (m *Model) Plan(date series.Day) (Plan, error) {
	m.forgetBefore(date)
	if len(m.days) < m.settings.MinDays {
		return Plan{}, fmt.Errorf("%w: %d of %d days", ErrShortHistory, len(m.days), m.settings.MinDays)
	}

	shape := m.shape()
	if shape == nil {
		return Plan{}, ErrIdle
	}

	c := m.calibrate()
	if c.Days == 0 {
		return Plan{}, ErrIdle
	}

	out := Plan{Block: m.settings.Block, Reaction: m.settings.Reaction, Requests: make([]float64, m.blocks)}

	// A multiplier applies to the shape that it was replayed with.
	for i := range out.Requests {
		switch {
		case c.NewestDays > 0:
			out.Requests[i] = shape[m.blocks+1]
		case c.WholeDay:
			out.Requests[i] = shape[m.blocks]
		default:
			out.Requests[i] = shape[i]
		}
	}

	c.limit(slices.Max(out.Requests), m.highest())
	for i := range out.Requests {
		out.Requests[i] *= c.Multiplier
	}

	out.Calibration = c
	return out, nil
}

// maxOfHighest bounds requests where no multiplier met the target, as a multiple of the highest usage.
const maxOfHighest = 1.1

// limit reduces the multiplier of a missed target, such that it makes no request of a base much larger than the highest usage: days before
// a jump call for a large multiplier, which the level after it does not need.
func (c *Calibration) limit(base, highest float64) {
	if c.Met() {
		return
	}

	for i, p := range slices.Backward(c.Points) {
		if p.Multiplier <= c.Multiplier && (i == 0 || p.Multiplier*base <= maxOfHighest*highest) {
			c.Multiplier = p.Multiplier
			c.Achieved = p.Violation
			return
		}
	}
}

// highest returns the highest usage of the days.
func (m *Model) highest() float64 {
	out := 0.0
	for _, d := range m.days {
		for _, b := range d.blocks {
			if v := b.Max(); v > out { // NaN without usage
				out = v
			}
		}
	}

	return out
}

// calibrate chooses the multiplier from the replayed days.
func (m *Model) calibrate() Calibration {
	c := Calibration{Target: m.settings.Target, Reaction: m.settings.Reaction != nil}
	samples := 0.0
	var above, requested [candidateCount]float64
	for _, d := range m.days {
		if d.samples == 0 {
			continue
		}

		c.Days++
		samples += d.samples

		for k := range above {
			above[k] += d.above[k]
			requested[k] += d.requested[k]
		}
	}

	if samples == 0 {
		return c
	}

	// The best candidate over all shapes decides the shape too.
	points := make([]Point, candidateCount)

	chosen := 0
	for k := range m.candidates {
		points[k] = Point{
			Multiplier: multiplier(k % multiplierCount), Violation: units.Ratio(above[k] / samples), Request: requested[k] / samples,
		}
		if points[k].betterThan(points[chosen], c.Target) {
			chosen = k
		}
	}

	switch chosen / multiplierCount {
	case shapeWhole:
		c.WholeDay = true
	case shapeNewest:
		c.WholeDay = m.blocks > 1
		c.NewestDays = m.settings.Newest
	}

	first := chosen / multiplierCount * multiplierCount
	c.Points = points[first : first+multiplierCount]
	c.Multiplier = points[chosen].Multiplier
	c.Achieved = points[chosen].Violation

	return c
}

// betterThan reports whether a point is to be preferred: the cheaper one of two that met the target, else the one with less
// time above the request.
func (p Point) betterThan(other Point, target units.Ratio) bool {
	if p.Violation <= target && other.Violation <= target {
		return p.Request < other.Request
	}

	return p.Violation < other.Violation
}

// Course is the request of one pod within a day: a plan, raised by the reaction. It is called in time order.
type Course struct {
	plan   Plan
	start  time.Time
	step   time.Duration
	recent Recent
	raised raise
}

// NewCourse returns the course of a day. A raise of the course of the day before, which may be nil, continues. step is the time
// between samples.
func NewCourse(p Plan, date series.Day, step time.Duration, before *Course) *Course {
	c := &Course{
		plan:   p,
		start:  date.Start(),
		step:   step,
		recent: NewRecent(step),
	}

	if before != nil {
		c.recent = before.recent
		c.raised = before.raised
	}

	return c
}

// Request returns the request in force at a time of the day.
func (c *Course) Request(at time.Time) float64 {
	return c.raised.request(at.UnixNano(), c.planned(at))
}

// Observe adds a sample that began at a time; it is acted on after the delay of the reaction.
func (c *Course) Observe(at time.Time, use float64) {
	reaction := c.plan.Reaction
	if reaction == nil {
		return
	}

	c.recent.Add(use)
	now := at.Add(time.Duration(lagOf(reaction.Delay, c.step)) * c.step)
	c.raised.observe(now.UnixNano(), c.planned(now), &c.recent, reaction)
}

func (c *Course) planned(at time.Time) float64 {
	i := int(at.Sub(c.start) / c.plan.Block)
	return c.plan.Requests[min(max(i, 0), len(c.plan.Requests)-1)]
}
