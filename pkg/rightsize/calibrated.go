// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Plan returns the request of the day of now that met the target in a replay of the days, with the default reaction if pods are raised
// within the day. A recommendation is one number, so it is one request a day. The running day is left out, so that the result changes
// once a day. Days whose Reaction is nil are replayed without one, which needs no less, and the newest days are then not tried. The
// errors are those of calibrate.Model.Plan.
func (p CPUPolicy) Plan(days []*Day, now time.Time, reacts bool) (calibrate.Plan, error) {
	today := series.DayOf(now)
	finished := func(d *Day) bool { return d.Day < today }
	s := calibrate.ConstantSettings()

	s.Target = p.Target
	s.Window = int(p.Window / day)
	if reacts {
		reacting := calibrate.DefaultSettings()
		s.Reaction = reacting.Reaction
		if !slices.ContainsFunc(days, func(d *Day) bool { return finished(d) && d.Reaction == nil }) {
			s.Newest = reacting.Newest
		}
	}

	m := calibrate.New(s)
	for _, d := range days {
		if finished(d) {
			m.AddSketch(d.Day, &d.CPU, d.Reaction)
		}
	}

	return m.Plan(today)
}

// calibrated returns the request of Plan. A history that is too short is covered as by Envelope.
func (p CPUPolicy) calibrated(days []*Day, now time.Time, reacts bool) cpuEstimate {
	plan, err := p.Plan(days, now, reacts)
	if err != nil {
		out := p.envelope(days, now)
		if !errors.Is(err, calibrate.ErrIdle) {
			out.notCalibrated = err
		}

		return out
	}

	c := plan.Calibration
	window := daysText(p.Window)
	if c.NewestDays > 0 {
		window = fmt.Sprintf("the newest %d days", c.NewestDays)
	}

	return cpuEstimate{
		value:  plan.Requests[0] / c.Multiplier,
		margin: units.Ratio(c.Multiplier - 1),
		detail: fmt.Sprintf("%s of %s; with the factor %.3g, %s above the request in %s, target %s",
			percentile(calibrate.ConstantSettings().Quantile), window, c.Multiplier, minutesText(c.Achieved), c.ReplayText(), minutesText(c.Target)),
		calibration: &c,
	}
}

// calibration applies the factor of a calibration, and flags a missed target or a missing replay.
func (s *sizer) calibration(found cpuEstimate) {
	if found.notCalibrated != nil {
		s.flag(FlagNotCalibrated, fmt.Sprintf("%v for a replay: sized as the default policy, which promises no target", found.notCalibrated))
		return
	}

	c := found.calibration
	if c == nil {
		return
	}

	s.Calibration = c
	s.step(StepCalibration, s.value*(1+float64(found.margin)), fmt.Sprintf("times %.3g: %s above the request in %s, target %s",
		c.Multiplier, minutesText(c.Achieved), c.ReplayText(), minutesText(c.Target)))

	// No multiplier of the replay met the target, so confidence is low.
	if !c.Met() {
		reaction := " without raising requests within the day"
		if c.Reaction {
			reaction = ""
		}

		s.flag(FlagTargetMissed, fmt.Sprintf("%s above the request in %s, %s more than the target of %s: "+
			"no factor up to %.3g meets it%s", minutesText(c.Achieved), c.ReplayText(),
			minutesText(c.Achieved-c.Target), minutesText(c.Target), c.Points[len(c.Points)-1].Multiplier, reaction))
		s.Confidence /= 2
	}
}

// minutesText formats a share of the time: 0.005 is "7.2 minutes a day (0.5 %)".
func minutesText(share units.Ratio) string {
	const minutesPerDay = 24 * 60
	return fmt.Sprintf("%.3g minutes a day (%s)", minutesPerDay*float64(share), percent(share))
}
