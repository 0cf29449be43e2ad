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
	// Hold is how long a reaction stays at least, and the use that it is then held against.
	Hold = time.Hour
	// confirmWithin is how close together two samples above the request ask for a reaction.
	confirmWithin = 10 * time.Minute
	// immediateFactor is how far above the request, as a multiple of it, one sample is enough.
	immediateFactor = 1.25
)

// Course is a plan being followed: the plan's request, or the higher one that a reaction asked for. It is not safe for
// concurrent use.
//
// A plan accepts that single samples pass it, so one alone is no reason to react unless it does so clearly: by a quarter
// of the request. Two within ten minutes are.
//
// A reaction comes Settings.Delay after use passed the request, to Settings.Raise above the highest use since; the second
// of a day to twice as far above it and so on, since what has misled the plan once will do so again. It is
// given up at whole hours, at the earliest after Hold, as far as the use of the last Hold needs it no more, by at most
// Settings.MaxDrop at once. Giving up is a planned change: it needs one that the plan left over, or one that the
// reaction has made unneeded.
type Course struct {
	plan     Plan
	settings Settings

	// day is the day in UTC that reactions are counted in.
	day       series.Day
	reactions int
	// changes counts the planned changes of this plan that took place, those of giving up a reaction among them; last is
	// what was in force at the last Request.
	changes int
	last    float64

	// exceededAt is when use passed the request, since the last reaction and within the last minutes; zero where it did not.
	// peak is the highest use since, and above counts the samples above the request.
	exceededAt   time.Time
	peak         float64
	samplesAbove int

	// raised is the request of a reaction; 0 where none is in force. since is when it last moved.
	raised float64
	since  time.Time
	reason string
	// checkedAt is the last hour at whose beginning it was held against use.
	checkedAt time.Time
	// hours are the highest use of the hour that runs and of the one before.
	hour                      time.Time
	currentPeak, previousPeak float64
}

// NewCourse follows a plan after another course; nil for the first. Reactions of the same day in UTC count on. What is
// in force goes into the plan as New's before, so a raise of the course before has had its say there.
func NewCourse(p Plan, s Settings, after *Course) *Course {
	c := &Course{plan: p, settings: s}
	if after != nil {
		c.day, c.reactions = after.day, after.reactions
		c.hour, c.currentPeak, c.previousPeak, c.last = after.hour, after.currentPeak, after.previousPeak, after.last
	}
	return c
}

// Observe tells the use of a sample that begins at the time; in time order. Reactions are decided from nothing else.
// Samples that no use can have are left out.
func (c *Course) Observe(at time.Time, use float64) {
	if !forecast.Usable(use) {
		return
	}
	if hour := at.Truncate(time.Hour); !hour.Equal(c.hour) {
		c.previousPeak = c.currentPeak
		if hour.Sub(c.hour) > time.Hour {
			c.previousPeak = 0
		}
		c.hour, c.currentPeak = hour, 0
	}
	c.currentPeak = max(c.currentPeak, use)
	if use > c.currentRequest(at) {
		if c.exceededAt.IsZero() || at.Sub(c.exceededAt) > confirmWithin {
			c.exceededAt, c.peak, c.samplesAbove = at, 0, 0
		}
		c.peak = max(c.peak, use)
		c.samplesAbove++
	}
}

// Request returns the request in force at a time, and why. Times must not go back. A course without a plan asks for 0.
func (c *Course) Request(at time.Time) (request float64, reason string) {
	if day := series.DayOf(at); day != c.day {
		c.day, c.reactions = day, 0
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

// Reactions is the number of reactions so far in the day in UTC of the last Request.
func (c *Course) Reactions() int { return c.reactions }

func (c *Course) currentRequest(at time.Time) float64 {
	step, _ := c.plan.At(at)
	return max(step.Request, c.raised)
}

func (c *Course) react(at time.Time) {
	if c.exceededAt.IsZero() || at.Sub(c.exceededAt) < c.settings.Delay {
		return
	}
	passed, force := c.exceededAt, c.currentRequest(at)
	if c.samplesAbove < 2 && c.peak < immediateFactor*force {
		return
	}
	c.exceededAt = time.Time{}
	if c.peak <= force {
		return // the plan went up meanwhile
	}
	if c.reactions >= c.settings.Reactions {
		return
	}
	c.reactions++
	c.raised = max(c.peak*(1+float64(c.settings.Raise)*float64(c.reactions)), force*(1+float64(c.settings.MinMove)))
	c.since = at
	c.reason = fmt.Sprintf("reaction %d of %d: use reached %.4g at %s, above %.4g", c.reactions, c.settings.Reactions, c.peak, passed.UTC().Format("15:04"), force)
}

// lower lets a reaction go, or a part of it.
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
