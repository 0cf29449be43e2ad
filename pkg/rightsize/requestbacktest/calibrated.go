// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Names of the calibrated rules. Calibrated follows a plan by blocks with reactions (CPU only); CalibratedAdopted follows one request a
// day with reactions, calibrated with them from the sketches of the days, as craned does with recommendations that it adopts (CPU only);
// CalibratedConstant is the built-in policy, which requests one number a day without reactions.
const (
	Calibrated         = CranePrefix + "calibrated"
	CalibratedAdopted  = Calibrated + "-adopted"
	CalibratedConstant = Calibrated + "-constant"
)

// OfCalibration returns the rule of a calibrated plan every midnight, followed with the reaction of the settings. Where the
// history is too short for a plan, the constant of the default policy is followed with the same reaction.
func OfCalibration(name string, s calibrate.Settings) Rule {
	return Rule{Name: name, Follow: func() CoursePlanner {
		p := &calibratedPlanner{model: calibrate.New(s), settings: s}
		return p.next
	}}
}

// OfAdoption returns the rule of the policy with the method Calibrated for workloads that react: the request that craned recommends, which
// the default reaction raises within the day. Without a plan nothing reacts.
func OfAdoption(name string, target units.Ratio) Rule {
	return Rule{Name: name, Follow: func() CoursePlanner {
		var last *calibrate.Course
		return func(past History) (Course, error) {
			policy, err := rightsize.PolicyByName(rightsize.CalibratedPolicy)
			if err != nil {
				return nil, err
			}

			policy.CPU.Target = target
			days := past.Days(policy.CPU.Window)
			plan, err := policy.CPU.Plan(days, past.Now, true)
			if err != nil {
				need := policy.CPU.Need(days, past.Now)
				if !(need >= 0) {
					return nil, fmt.Errorf("%w: %w", ErrNoUse, err)
				}

				plan = calibrate.Plan{Requests: []float64{need}, Block: day}
			}

			last = calibrate.NewCourse(plan, series.DayOf(past.Now), past.Samples.Step, last)
			return last, nil
		}
	}}
}

type calibratedPlanner struct {
	model    *calibrate.Model
	settings calibrate.Settings
	added    time.Time // end of the samples in the model
	last     *calibrate.Course
	fallback rightsize.CPUPolicy
}

// next implements CoursePlanner.
func (p *calibratedPlanner) next(past History) (Course, error) {
	for date, part := range past.Samples.Between(p.added, past.Now).Days() {
		p.model.AddDay(date, []calibrate.PodUsage{{Series: part}})
	}

	p.added = past.Now
	today := series.DayOf(past.Now)

	plan, err := p.model.Plan(today)
	if err != nil {
		need, err := p.constant(past, err)
		if err != nil {
			return nil, err
		}

		plan = calibrate.Plan{Requests: []float64{need}, Block: day, Reaction: p.settings.Reaction}
	}

	p.last = calibrate.NewCourse(plan, today, past.Samples.Step, p.last)
	return p.last, nil
}

// constant returns the request of the default policy.
func (p *calibratedPlanner) constant(past History, cause error) (float64, error) {
	if p.fallback.Window == 0 {
		policy, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
		if err != nil {
			return 0, err
		}

		p.fallback = policy.CPU
	}

	if need := p.fallback.Need(past.Days(p.fallback.Window), past.Now); need >= 0 {
		return need, nil
	}

	return 0, fmt.Errorf("%w: %w", ErrNoUse, cause)
}
