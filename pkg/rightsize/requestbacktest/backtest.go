// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requestbacktest holds ways of sizing against series of real use: each decides at every midnight from the past only,
// and is scored on the raw samples of the day that follows. A course moves within the day, by use that is at least
// ObserveDelay old.
//
// It differs from the evidence of a recommendation (see rightsize.CollectEvidence) in two ways. It scores samples, not sketches.
// And it compares formulas on series of any unit, so rounding, floors and ceilings are left out. It must not know where
// series come from nor how a report is printed.
package requestbacktest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

const (
	day = 24 * time.Hour
	// FirstDecision is the history before the first decision.
	FirstDecision = 7 * day
	// materialChange is by how much a decision must move to count as a change.
	materialChange = 0.10
)

// ErrTooShort is returned, wrapped, for a series that ends before its first decision could be held against a sample.
var ErrTooShort = errors.New("too short")

// ErrNoUse is returned, wrapped, where the past that a decision looks at holds no sample.
var ErrNoUse = errors.New("no use in the past")

// Sizes are a decision for one day, in the unit of the series.
type Sizes struct {
	Request float64
	// Limit is what use must not pass; memory only.
	Limit float64
}

// History is what a rule may look at: everything before Now, as raw samples and as sketches by day.
type History struct {
	Now time.Time
	// Samples end before Now.
	Samples series.Series
	// profile holds sketches of the whole series; rules of this package only look at the days before Now.
	profile *rightsize.Profile
}

// Days returns the sketches of the days of a window before Now.
func (p History) Days(window time.Duration) []*rightsize.Day { return p.profile.Window(p.Now, window) }

// Rule is one way of sizing: with one constant a day, or along a course within the day. One of Decide and Follow is set.
type Rule struct {
	Name string
	// Decide returns the sizes for the day that begins at past.Now.
	Decide func(past History) Sizes
	// Follow returns a follower of one series, which is asked for a course every day, in order.
	Follow func() CoursePlanner
}

// CoursePlanner returns the course for the day that begins at past.Now. A day for which it returns ErrNoUse is not scored.
type CoursePlanner func(past History) (Course, error)

// Course is the request within a day. It is asked and told in time order.
type Course interface {
	// Request returns the request in force at a time.
	Request(at time.Time) float64
	// Observe tells a sample that began at the time. It is told ObserveDelay after that, never before.
	Observe(at time.Time, use float64)
}

// ObserveDelay is how old a sample is when a course first sees it.
const ObserveDelay = 2 * time.Minute

// Score is how one rule did on one series, or the mean over several.
type Score struct {
	// Name of the series; empty in a mean.
	Name   string `json:"name,omitempty"`
	Policy string `json:"policy"`
	// Slack is 1 - sum(use)/sum(request).
	Slack float64 `json:"slack"`
	// Violation is the share of samples above the request.
	Violation float64 `json:"violation"`
	// Overrun is the use above the request as a share of the use.
	Overrun float64 `json:"overrun"`
	// OOMDays is the number of days with a sample above the limit (their mean number, in a mean); nil for CPU.
	OOMDays *float64 `json:"oomDays"`
	// Changes is the mean number of times a day that the request moved: by more than 10 % for a rule with one request a
	// day, at all for a course.
	Changes float64 `json:"changes"`
}

// Report is the outcome of a backtest.
type Report struct {
	Series []Score `json:"series"`
	// Mean has one entry for each rule: the mean over the series, each weighing the same.
	Mean []Score `json:"mean"`
}

// Named is a series and its name.
type Named struct {
	Name   string
	Series series.Series
}

// Run holds every rule against every series. A series that is too short, or without any use, is an error that names it;
// the others are still scored, so a report comes with the errors.
func Run(all []Named, rules []Rule, resource series.Resource) (Report, error) {
	report := Report{Series: []Score{}, Mean: []Score{}}
	var errs []error
	scored := 0
	sums := make([]Score, len(rules))
	for _, named := range all {
		scores, err := scoreSeries(named, rules, resource)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		scored++
		report.Series = append(report.Series, scores...)
		for i, s := range scores {
			sums[i].add(s)
		}
	}
	if scored > 0 {
		for i, sum := range sums {
			sum.Name, sum.Policy = "", rules[i].Name
			report.Mean = append(report.Mean, sum.dividedBy(float64(scored)))
		}
	}
	return report, errors.Join(errs...)
}

// scoreSeries holds every rule against one series.
func scoreSeries(named Named, rules []Rule, resource series.Resource) ([]Score, error) {
	s := named.Series
	first := firstDecision(s)
	if len(s.Values) == 0 || s.Step <= 0 || !first.Before(s.End()) {
		return nil, fmt.Errorf("series %s: %w: the first decision needs %d days of history and a sample after them", named.Name, ErrTooShort, FirstDecision/day)
	}
	profile := rightsize.NewProfile()
	use := rightsize.Usage{Pod: named.Name, Series: s}
	var counted int
	if resource == series.Memory {
		counted = profile.AddMemory(use)
	} else {
		counted = profile.AddCPU(use)
	}
	if counted == 0 {
		return nil, fmt.Errorf("series %s: no usable sample", named.Name)
	}
	scores := make([]Score, 0, len(rules))
	for _, rule := range rules {
		t := rawStats{}
		var follow CoursePlanner
		if rule.Follow != nil {
			follow = rule.Follow()
		}
		for now := first; now.Before(s.End()); now = now.Add(day) {
			today, past := s.Between(now, now.Add(day)), History{Now: now, Samples: s.Between(s.Start, now), profile: profile}
			if follow == nil {
				t.day(today, rule.Decide(past))
				continue
			}
			course, err := follow(past)
			if errors.Is(err, ErrNoUse) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("series %s: policy %s on %s: %w", named.Name, rule.Name, series.DayOf(now), err)
			}
			t.course(today, course)
		}
		score := t.score(resource)
		score.Name, score.Policy = named.Name, rule.Name
		scores = append(scores, score)
	}
	return scores, nil
}

// firstDecision is the first midnight with enough history before it.
func firstDecision(s series.Series) time.Time {
	at := s.Start.Add(FirstDecision)
	midnight := series.DayOf(at).Start()
	if midnight.Before(at) {
		midnight = midnight.Add(day)
	}
	return midnight
}

// rawStats sums up the days of one rule on one series.
type rawStats struct {
	use, requested, excess float64
	samples, over          int
	days, oomDays, changes int
	last                   float64
}

func (t *rawStats) day(s series.Series, made Sizes) {
	if !(made.Request >= 0) || math.IsInf(made.Request, 0) {
		return
	}
	oom := false
	for _, v := range s.Values {
		if series.IsGap(v) {
			continue
		}
		t.sample(v, made.Request)
		oom = oom || v > made.Limit
	}
	t.days++
	if oom {
		t.oomDays++
	}
	if t.days > 1 && math.Abs(made.Request-t.last) > materialChange*t.last {
		t.changes++
	}
	t.last = made.Request
}

func (t *rawStats) sample(use, request float64) {
	t.samples++
	t.use += use
	t.requested += request
	if use > request {
		t.over++
		t.excess += use - request
	}
}

// course scores a day sample by sample. Every move counts as a change, however small: each one is a resize.
func (t *rawStats) course(s series.Series, c Course) {
	seen := 0
	for i, v := range s.Values {
		at := s.Time(i)
		for ; seen < i && !s.Time(seen).Add(ObserveDelay).After(at); seen++ {
			c.Observe(s.Time(seen), s.Values[seen])
		}
		request := c.Request(at)
		if (t.days > 0 || i > 0) && request != t.last {
			t.changes++
		}
		t.last = request
		if !series.IsGap(v) {
			t.sample(v, request)
		}
	}
	// What is left of the day is told for the sake of the next one, whose past holds it anyway.
	for ; seen < len(s.Values); seen++ {
		c.Observe(s.Time(seen), s.Values[seen])
	}
	t.days++
}

func (t *rawStats) score(resource series.Resource) Score {
	s := Score{}
	if t.requested > 0 {
		s.Slack = 1 - t.use/t.requested
	}
	if t.samples > 0 {
		s.Violation = float64(t.over) / float64(t.samples)
	}
	if t.use > 0 {
		s.Overrun = t.excess / t.use
	}
	if t.days > 0 {
		s.Changes = float64(t.changes) / float64(t.days)
	}
	if resource == series.Memory {
		ooms := float64(t.oomDays)
		s.OOMDays = &ooms
	}
	return s
}

func (s *Score) add(o Score) {
	s.Slack += o.Slack
	s.Violation += o.Violation
	s.Overrun += o.Overrun
	s.Changes += o.Changes
	if o.OOMDays != nil {
		sum := *o.OOMDays
		if s.OOMDays != nil {
			sum += *s.OOMDays
		}
		s.OOMDays = &sum
	}
}

func (s Score) dividedBy(n float64) Score {
	s.Slack /= n
	s.Violation /= n
	s.Overrun /= n
	s.Changes /= n
	if s.OOMDays != nil {
		mean := *s.OOMDays / n
		s.OOMDays = &mean
	}
	return s
}
