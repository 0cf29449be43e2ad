// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// steps is a course that changes at fixed minutes and records its samples.
type steps struct {
	t    *testing.T
	at   map[time.Time]float64
	last float64
	now  time.Time
}

func (s *steps) Request(at time.Time) float64 {
	s.now = at
	if v, ok := s.at[at]; ok {
		s.last = v
	}

	return s.last
}

func (s *steps) Observe(at time.Time, _ float64) {
	over := s.now.Add(time.Minute).Equal(series.DayOf(s.now).End())
	if !s.now.IsZero() && !over && s.now.Sub(at) < time.Minute {
		// Before Request(t) the samples up to two minutes before t are observed; the newest Request is one sample
		// behind.
		s.t.Errorf("at %v the course is told the sample of %v", s.now.Add(time.Minute), at)
	}
}

func TestCoursesAreScoredBySample(t *testing.T) {
	s := series.Series{Start: start, Step: time.Minute, Values: make([]float64, 8*1440)}
	for i := range s.Values {
		s.Values[i] = 1
	}

	noon := start.Add(7*day + 12*time.Hour)
	rule := Rule{Name: "steps", Follow: func() CoursePlanner {
		return func(past History) (Course, error) {
			return &steps{t: t, last: 2, at: map[time.Time]float64{noon: 0.5, noon.Add(6 * time.Hour): 2.01}}, nil
		}
	}}

	report, err := Run([]Named{{"a", s}}, []Rule{rule}, units.CPU)
	if err != nil {
		t.Fatal(err)
	}

	got := report.Series[0]
	wantSlack := 1 - 24/(12*2+6*0.5+6*2.01)
	if math.Abs(got.Slack-wantSlack) > 1e-9 || math.Abs(got.Violation-0.25) > 1e-9 || math.Abs(got.Overrun-0.125) > 1e-9 || got.Changes != 2 {
		t.Errorf("%+v, want slack %v, violation 0.25, overrun 0.125, 2 changes", got, wantSlack)
	}
}

// noisyDays are minutes of a daily cycle with bursts.
func noisyDays(days int, seed uint64) series.Series {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := series.Series{Start: start, Step: time.Minute, Values: make([]float64, days*1440)}
	for i := range s.Values {
		s.Values[i] = (2 - math.Cos(2*math.Pi*float64(i)/1440)) * math.Exp(0.1*rng.NormFloat64())
		if rng.IntN(500) == 0 {
			s.Values[i] *= 3
		}
	}

	return s
}

// TestCoursesSeeThePastOnly checks that changes of future samples do not change earlier requests.
func TestCoursesSeeThePastOnly(t *testing.T) {
	s := noisyDays(10, 3)
	cut := 8*1440 + 700
	poisoned := series.Series{Start: s.Start, Step: s.Step, Values: append([]float64(nil), s.Values...)}
	for i := cut; i < len(poisoned.Values); i++ {
		poisoned.Values[i] = 1000
	}

	for _, name := range []string{Calibrated, CalibratedAdopted} {
		rules, err := Rules(units.CPU, name)
		if err != nil {
			t.Fatal(err)
		}

		clean := requests(t, rules[0], s)
		dirty := requests(t, rules[0], poisoned)
		// Samples at the cut may be observed two minutes later.
		for i := range cut - 7*1440 + 2 {
			if clean[i] != dirty[i] {
				t.Fatalf("%s: minute %d of the second week asks for %v, with another future for %v", name, i, clean[i], dirty[i])
			}
		}

		if clean[cut-7*1440+2] == dirty[cut-7*1440+2] {
			t.Errorf("%s: no reaction to the samples of another future", name)
		}
	}
}

// requests follows a rule over the days from the first decision on.
func requests(t *testing.T, rule Rule, s series.Series) []float64 {
	t.Helper()

	profile := rightsize.NewProfile()
	profile.AddCPU(rightsize.Usage{Pod: "web", Series: s, Reaction: calibrate.DefaultSettings().Reaction})

	follow := rule.Follow()
	var out []float64
	for now := firstDecision(s); now.Before(s.End()); now = now.Add(day) {
		course, err := follow(History{Now: now, Samples: s.Between(s.Start, now), profile: profile})
		if err != nil {
			t.Fatal(err)
		}

		var tallied rawStats
		tallied.course(s.Between(now, now.Add(day)), recorder{course, &out})
	}

	return out
}

type recorder struct {
	Course
	into *[]float64
}

func (r recorder) Request(at time.Time) float64 {
	v := r.Course.Request(at)
	*r.into = append(*r.into, v)
	return v
}

// TestLongGaps checks that a series that starts late or stops for three weeks is still scored.
func TestLongGaps(t *testing.T) {
	rules, err := Rules(units.CPU, Calibrated, CalibratedAdopted)
	if err != nil {
		t.Fatal(err)
	}

	for name, f := range map[string]func(hour int) float64{
		"late": func(hour int) float64 { return map[bool]float64{true: 1, false: series.Gap()}[hour >= 10*24] },
		"paused": func(hour int) float64 {
			return map[bool]float64{true: 1, false: series.Gap()}[hour < 9*24 || hour > 32*24]
		},
	} {
		report, err := Run([]Named{{name, hourly(36, f)}}, rules, units.CPU)
		if err != nil || len(report.Series) != 2 {
			t.Fatalf("%s: Run() = %+v, %v, want a report of two rules", name, report, err)
		}

		for _, s := range report.Series {
			if s.Slack < 0 || s.Slack > 0.2 || s.Violation > 0.05 {
				t.Errorf("%s: %+v, want a slack of at most 0.2 and violations of at most 0.05", name, s)
			}
		}
	}
}
