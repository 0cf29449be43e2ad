// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"errors"
	"fmt"
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
)

// calibrated returns the request that met the target in a replay of the days. One request a day, without a reaction: a
// recommendation is one number, and nothing raises it within the day. The running day is left out, so that the result changes once a
// day. A history that is too short is covered as by Envelope.
func (p CPUPolicy) calibrated(days []*Day, now time.Time) cpuEstimate {
	s := calibrate.ConstantSettings()
	s.Target, s.Window = p.Target, int(p.Window/day)
	m := calibrate.New(s)
	today := series.DayOf(now)
	for _, d := range days {
		if d.Day < today {
			m.AddSketch(d.Day, &d.CPU)
		}
	}
	plan, err := m.Plan(today)
	if err != nil {
		out := p.envelope(days, now)
		if !errors.Is(err, calibrate.ErrIdle) {
			out.notCalibrated = err
		}
		return out
	}
	c := plan.Calibration
	return cpuEstimate{
		value:  plan.Requests[0] / c.Multiplier,
		margin: series.Ratio(c.Multiplier - 1),
		detail: fmt.Sprintf("%s of %s; with the factor %.3g, %s above the request in the replay of %d days, target %s",
			percentile(s.Quantile), daysText(p.Window), c.Multiplier, minutesText(c.Achieved), c.Days, minutesText(c.Target)),
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
	s.step(StepCalibration, s.value*(1+float64(found.margin)), fmt.Sprintf("times %.3g: %s above the request in the replay of %d days, target %s",
		c.Multiplier, minutesText(c.Achieved), c.Days, minutesText(c.Target)))
	if !c.Met() {
		s.flag(FlagTargetMissed, fmt.Sprintf("%s above the request in the replay of %d days, %s more than the target of %s: "+
			"no factor up to %.3g meets it without raising requests within the day", minutesText(c.Achieved), c.Days,
			minutesText(c.Achieved-c.Target), minutesText(c.Target), c.Points[len(c.Points)-1].Multiplier))
		s.Confidence /= 2
	}
}

// minutesText formats a share of the time: 0.005 is "7.2 minutes a day (0.5 %)".
func minutesText(share series.Ratio) string {
	const minutesPerDay = 24 * 60
	return fmt.Sprintf("%.3g minutes a day (%s)", minutesPerDay*float64(share), percent(share))
}
