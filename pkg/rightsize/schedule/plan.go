// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/forecast"
)

// Horizon is the longest plan; the time after it is planned again before it comes.
const Horizon = 24 * time.Hour

// ErrForecast means that a forecast has no usable value.
var ErrForecast = errors.New("no usable forecast")

// Step is a request for a part of the day.
type Step struct {
	// From is inclusive, To exclusive; at least MinStep apart, unless the forecast itself is shorter.
	From, To time.Time
	// Request in the unit of the series; finite, never negative.
	Request float64
	// Risk is the share of the step's time that is forecast above the request, 0 to 1.
	Risk float64
	// Reason explains the request and its start.
	Reason string
}

// Plan is the schedule of a day.
type Plan struct {
	Steps []Step
	// Changes is the number of changes of the request, including one from the previous request to the first step.
	Changes int
	// Slack and Risk are the forecast values of the whole plan: 1 - usage/request, and the share of time above it.
	Slack, Risk float64
	// Reason names the criteria and the forecast.
	Reason string
}

// End returns the first instant after the plan; zero for an empty one.
func (p Plan) End() time.Time {
	if len(p.Steps) == 0 {
		return time.Time{}
	}

	return p.Steps[len(p.Steps)-1].To
}

// At returns the step at t: the first one before the plan, the last one after it; false for an empty plan.
func (p Plan) At(t time.Time) (Step, bool) {
	if len(p.Steps) == 0 {
		return Step{}, false
	}

	for _, s := range p.Steps {
		if t.Before(s.To) {
			return s, true
		}
	}

	return p.Steps[len(p.Steps)-1], true
}

// changesAfter returns the number of changes after a time.
func (p Plan) changesAfter(t time.Time) int {
	n := 0
	for _, s := range p.Steps {
		if s.From.After(t) {
			n++
		}
	}

	return n
}

// New plans the first day of a forecast. before is the request in force until then: leaving it is a change, and lowering it
// is bounded by Settings.MaxDrop; 0 (or an unusable value) means that there is none.
//
// It minimises slack + price x violation + cost of a change x changes, over all schedules of whole hours within the bounds
// of the settings; see optimiser.
func New(f forecast.Forecast, before float64, s Settings) (Plan, error) {
	if err := s.Validate(); err != nil {
		return Plan{}, fmt.Errorf("settings of a schedule: %w", err)
	}

	if f.Step <= 0 || len(f.Values) == 0 {
		return Plan{}, ErrForecast
	}

	if longest := int(Horizon / f.Step); len(f.Values) > max(1, longest) {
		f.Values = f.Values[:max(1, longest)]
	}
	if !(before > 0) || math.IsInf(before, 0) || before > forecast.MaxValue {
		before = 0
	}

	o := optimiser{cells: cells(f, float64(s.Margin)), previous: before, settings: s}
	requests := o.run()
	return o.plan(requests, f), nil
}

// plan merges equal adjacent hours into steps with their reasons.
func (o *optimiser) plan(requests []float64, f forecast.Forecast) Plan {
	p := Plan{}
	last := o.previous
	use, requested := 0.0, 0.0
	for i := 0; i < len(requests); {
		j := i + 1
		for j < len(requests) && requests[j] == requests[i] {
			j++
		}

		step := Step{From: o.cells[i].from, To: o.cells[j-1].to, Request: requests[i]}
		weight := 0.0
		peak := i
		for k := i; k < j; k++ {
			step.Risk += o.cells[k].weight * o.cells[k].risk(step.Request)
			weight += o.cells[k].weight

			if o.cells[k].risk(step.Request) > o.cells[peak].risk(step.Request) {
				peak = k
			}
			use += o.cells[k].weight * o.cells[k].median
		}

		requested += weight * step.Request
		p.Risk += step.Risk
		step.Risk /= weight
		step.Reason = o.reason(step, last, o.cells[peak].from)
		if step.Request != last && (i > 0 || o.previous > 0) {
			p.Changes++
		}

		last = step.Request
		p.Steps = append(p.Steps, step)
		i = j
	}

	if requested > 0 {
		p.Slack = 1 - use/requested
	}

	p.Reason = fmt.Sprintf("cheapest of slack + %.4g x violation with at most %d changes; forecast by %s", o.settings.Price, o.settings.Changes, f.Model)
	if f.Reason != "" {
		p.Reason += " (" + f.Reason + ")"
	}

	return p
}

func (o *optimiser) reason(s Step, before float64, peak time.Time) string {
	holds := fmt.Sprintf("%.4g holds the forecast for %.2f %% of the time, least at %s", s.Request, 100*(1-s.Risk), peak.UTC().Format("15:04"))
	switch {
	case before <= 0:
		return holds
	case s.Request > before:
		return fmt.Sprintf("up at once from %.4g: %s", before, holds)
	case s.Request < before && s.Request <= before*(1-float64(o.settings.MaxDrop))*1.05:
		return fmt.Sprintf("down from %.4g by the most that one step gives up: %s", before, holds)
	case s.Request < before:
		return fmt.Sprintf("down from %.4g: %s", before, holds)
	}

	return "stays: " + holds
}
