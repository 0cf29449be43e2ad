// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

const (
	// Hold is the minimum duration of a reaction, and the period of usage that it is then compared with.
	Hold = time.Hour
	// confirmWithin is the time within which two samples above the request lead to a reaction.
	confirmWithin = 10 * time.Minute
	// immediateFactor is the multiple of the request from which one sample is sufficient.
	immediateFactor = 1.25
)

// Course follows a plan: its request is that of the plan, or the higher one of a reaction. It is not safe for concurrent
// use.
//
// A plan accepts that single samples exceed it, so one alone leads to a reaction only if it does so by a quarter of the
// request; two within ten minutes do.
//
// A reaction comes Settings.Delay after usage exceeded the request, and raises it to Settings.Raise above the highest usage
// since then; the second one of a day to twice as far above it and so on, since the plan is likely to be wrong again. It is
// lowered at whole hours, at the earliest after Hold, as far as the usage of the last Hold allows, by at most
// Settings.MaxDrop at once. Lowering is a planned change: it needs one that the plan has left, or one that the reaction has
// made unnecessary.
type Course struct {
	plan     Plan
	settings Settings

	// day is the day in UTC for which reactions are counted.
	day       series.Day
	reactions int
	// changes counts the planned changes of this plan, including those that lower a reaction; last is the request at the
	// last call of Request.
	changes int
	last    float64

	// exceededAt is the time at which usage exceeded the request, since the last reaction and within the last minutes; zero
	// if it did not. peak is the highest usage since then, and samplesAbove the number of samples above the request.
	exceededAt   time.Time
	peak         float64
	samplesAbove int

	// raised is the request of a reaction; 0 if there is none. since is the time of its last change.
	raised float64
	since  time.Time
	reason string
	// checkedAt is the last hour at which the reaction was compared with usage.
	checkedAt time.Time
	// currentPeak and previousPeak are the highest usage of the current hour and of the one before.
	hour                      time.Time
	currentPeak, previousPeak float64
}

// NewCourse returns a course that follows a plan after another course; nil for the first. Reactions of the same day in UTC
// are counted on. The plan was computed from the current request, so a raise of the previous course is included in it.
func NewCourse(p Plan, s Settings, after *Course) *Course {
	c := &Course{plan: p, settings: s}
	if after != nil {
		c.day, c.reactions = after.day, after.reactions
		c.hour = after.hour
		c.currentPeak = after.currentPeak
		c.previousPeak = after.previousPeak
		c.last = after.last
	}

	return c
}

// Observe adds the usage of a sample that begins at a time, in time order. Unusable samples are ignored.
func (c *Course) Observe(at time.Time, use float64) {
	if !forecast.Usable(use) {
		return
	}

	if hour := at.Truncate(time.Hour); !hour.Equal(c.hour) {
		c.previousPeak = c.currentPeak
		if hour.Sub(c.hour) > time.Hour {
			c.previousPeak = 0
		}

		c.hour = hour
		c.currentPeak = 0
	}

	c.currentPeak = max(c.currentPeak, use)
	if use > c.currentRequest(at) {
		if c.exceededAt.IsZero() || at.Sub(c.exceededAt) > confirmWithin {
			c.exceededAt = at
			c.peak = 0
			c.samplesAbove = 0
		}

		c.peak = max(c.peak, use)
		c.samplesAbove++
	}
}

// Request returns the request in force at a time, and the reason. Times must not decrease. A course without a plan returns
// 0.
func (c *Course) Request(at time.Time) (request float64, reason string) {
	if day := series.DayOf(at); day != c.day {
		c.day = day
		c.reactions = 0
	}

	c.lower(at)
	if now := c.currentRequest(at); now != c.last {
		if c.last > 0 {
			c.changes++
		}
		c.last = now
	}

	c.react(at)
	c.last = c.currentRequest(at)
	step, _ := c.plan.At(at)
	if c.raised > step.Request {
		return c.raised, c.reason
	}

	return step.Request, step.Reason
}

// Reactions returns the number of reactions in the UTC day of the last Request.
func (c *Course) Reactions() int { return c.reactions }

func (c *Course) currentRequest(at time.Time) float64 {
	step, _ := c.plan.At(at)
	return max(step.Request, c.raised)
}

func (c *Course) react(at time.Time) {
	if c.exceededAt.IsZero() || at.Sub(c.exceededAt) < c.settings.Delay {
		return
	}

	passed := c.exceededAt
	force := c.currentRequest(at)
	if c.samplesAbove < 2 && c.peak < immediateFactor*force {
		return
	}

	c.exceededAt = time.Time{}
	if c.peak <= force {
		return // the plan raised the request
	}
	if c.reactions >= c.settings.Reactions {
		return
	}

	c.reactions++
	c.raised = max(c.peak*(1+float64(c.settings.Raise)*float64(c.reactions)), force*(1+float64(c.settings.MinMove)))
	c.since = at
	c.reason = fmt.Sprintf("reaction %d of %d: use reached %.4g at %s, above %.4g", c.reactions, c.settings.Reactions, c.peak, passed.UTC().Format("15:04"), force)
}

// lower ends a reaction, or lowers it.
func (c *Course) lower(at time.Time) {
	hour := at.Truncate(time.Hour)
	if c.raised == 0 || hour.Sub(c.since) < Hold || hour.Equal(c.checkedAt) {
		return
	}

	c.checkedAt = hour
	step, _ := c.plan.At(at)
	if c.raised <= step.Request {
		c.raised = 0
		return
	}
	if c.changes+c.plan.changesAfter(at) >= c.settings.Changes {
		return
	}

	needed := max(c.currentPeak, c.previousPeak) * (1 + float64(c.settings.Raise))
	target := max(step.Request, needed, c.raised*(1-float64(c.settings.MaxDrop)))
	if target > c.raised*(1-float64(c.settings.MinMove)) {
		return
	}

	c.since = hour
	c.reason = fmt.Sprintf("down from %.4g: use of the last hour reached %.4g", c.raised, max(c.currentPeak, c.previousPeak))
	c.raised = target
	if target <= step.Request {
		c.raised = 0
	}
}
