// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requestbacktest compares ways of sizing with series of real usage: each decides at every midnight from the past
// only, and is scored on the raw samples of the following day. A course also changes within the day, by usage that is at
// least ObserveDelay old.
//
// Unlike the evidence of a recommendation (see rightsize.CollectEvidence) it scores samples instead of sketches, and
// compares formulas on series of any unit, without rounding, floors and ceilings. Reading series and printing reports do not
// belong here.
package requestbacktest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

const (
	day = 24 * time.Hour
	// FirstDecision is the history before the first decision.
	FirstDecision = 7 * day
	// materialChange is the relative change from which a decision counts as changed.
	materialChange = 0.10
)

// ErrTooShort is returned, wrapped, for a series that ends before its first decision can be scored.
var ErrTooShort = errors.New("too short")

// ErrNoUse is returned, wrapped, if the past of a decision has no sample.
var ErrNoUse = errors.New("no use in the past")

// Sizes is a decision for one day, in the unit of the series.
type Sizes struct {
	Request float64
	// Limit is the limit of usage; memory only.
	Limit float64
}

// History is the input of a rule: everything before Now, as raw samples and as sketches by day.
type History struct {
	Now time.Time
	// Samples end before Now.
	Samples series.Series
	// profile holds sketches of the whole series; rules use the days before Now only.
	profile *rightsize.Profile
}

// Days returns the sketches of the days of a window before Now.
func (p History) Days(window time.Duration) []*rightsize.Day { return p.profile.Window(p.Now, window) }

// Rule is one way of sizing: one constant per day, or a course within the day. One of Decide and Follow is set.
type Rule struct {
	Name string
	// Decide returns the sizes for the day that begins at past.Now.
	Decide func(past History) Sizes
	// Follow returns a planner for one series, which is called every day, in order.
	Follow func() CoursePlanner
}

// CoursePlanner returns the course for the day that begins at past.Now. A day for which it returns ErrNoUse is not scored.
type CoursePlanner func(past History) (Course, error)

// Course is the request within a day. It is called in time order.
type Course interface {
	// Request returns the request in force at a time.
	Request(at time.Time) float64
	// Observe adds a sample that began at the time, ObserveDelay after that at the earliest.
	Observe(at time.Time, use float64)
}

// ObserveDelay is the age at which a course first receives a sample.
const ObserveDelay = 2 * time.Minute

// Report is the outcome of a backtest.
type Report struct {
	Series []Score `json:"series"`
	// Mean has one entry for each rule: the mean over the series, each weighing the same; the geometric mean of Cost and the
	// median of LongestAbove.
	Mean []Score `json:"mean"`
	// Weighted has the means weighted by the need of the series, as money does: a series counts by its size. It has a meaning
	// only for series of one unit.
	Weighted []Score `json:"weighted"`
	// LeftOut names the series that are idle, or for which some rule requested nothing on all days: a request of zero is
	// never applied, so it must not count as one without slack.
	LeftOut []string `json:"leftOut,omitempty"`
}

// Named is a series and its name.
type Named struct {
	Name   string
	Series series.Series
}

// Run scores every rule on every series. A series that is too short or without usage leads to an error that names it; the
// others are still scored, so a report may come with errors.
func Run(all []Named, rules []Rule, resource units.Resource) (Report, error) {
	report := Report{Series: []Score{}, Mean: []Score{}, Weighted: []Score{}}
	var errs []error
	means := make([]meanScore, len(rules))
	for _, named := range all {
		scores, err := scoreSeries(named, rules, resource)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		// A rule that requests nothing has no slack, and would win the means.
		if slices.ContainsFunc(scores, Score.isIdle) {
			report.LeftOut = append(report.LeftOut, named.Name)
			continue
		}

		report.Series = append(report.Series, scores...)
		for i, s := range scores {
			means[i].add(s)
		}
	}

	if len(report.Series) > 0 {
		for i := range means {
			report.Mean = append(report.Mean, means[i].unweighted(rules[i].Name))
			report.Weighted = append(report.Weighted, means[i].weighted(rules[i].Name))
		}
	}

	return report, errors.Join(errs...)
}

// scoreSeries scores every rule on one series.
func scoreSeries(named Named, rules []Rule, resource units.Resource) ([]Score, error) {
	s := named.Series
	first := firstDecision(s)
	if len(s.Values) == 0 || s.Step <= 0 || !first.Before(s.End()) {
		return nil, fmt.Errorf("series %s: %w: the first decision needs %d days of history and a sample after them", named.Name, ErrTooShort, FirstDecision/day)
	}

	profile := rightsize.NewProfile()
	use := rightsize.Usage{
		Pod:      named.Name,
		Series:   s,
		Reaction: calibrate.DefaultSettings().Reaction,
		Capacity: math.Inf(1), // Series may have any unit, and all samples are scored.
	}

	var counted int
	if resource == units.Memory {
		counted = profile.AddMemory(use)
	} else {
		counted = profile.AddCPU(use)
	}

	if counted == 0 {
		return nil, fmt.Errorf("series %s: no usable sample", named.Name)
	}

	scores := make([]Score, 0, len(rules))

	// A planner keeps state from day to day, so each series has one of its own.
	for _, rule := range rules {
		t := rawStats{step: s.Step}
		var follow CoursePlanner
		if rule.Follow != nil {
			follow = rule.Follow()
		}

		for now := first; now.Before(s.End()); now = now.Add(day) {
			samples := s.Between(now, now.Add(day))
			past := History{Now: now, Samples: s.Between(s.Start, now), profile: profile}
			if follow == nil {
				t.addDay(samples, rule.Decide(past))
				continue
			}

			course, err := follow(past)
			if errors.Is(err, ErrNoUse) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("series %s: policy %s on %s: %w", named.Name, rule.Name, series.DayOf(now), err)
			}

			t.course(samples, course)
		}

		score := t.score(resource)
		score.Name = named.Name
		score.Policy = rule.Name
		scores = append(scores, score)
	}

	return scores, nil
}

// firstDecision returns the first midnight with enough history before it.
func firstDecision(s series.Series) time.Time {
	enough := s.Start.Add(FirstDecision)
	midnight := series.DayOf(enough).Start()
	if midnight.Before(enough) {
		midnight = midnight.Add(day)
	}

	return midnight
}
