// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// hourly returns a series with one sample an hour.
func hourly(days int, f func(hour int) float64) series.Series {
	s := series.Series{Start: start, Step: time.Hour, Values: make([]float64, days*24)}
	for i := range s.Values {
		s.Values[i] = f(i)
	}

	return s
}

// fixed always decides the same.
func fixed(request, limit float64) Rule {
	return Rule{Name: "fixed", Decide: func(History) Sizes { return Sizes{Request: request, Limit: limit} }}
}

func TestScoresByHand(t *testing.T) {
	// Two days are scored: use is 2, except for 6 one hour a day.
	s := hourly(9, func(hour int) float64 {
		if hour%24 == 12 {
			return 6
		}

		return 2
	})

	report, err := Run([]Named{{"a", s}}, []Rule{fixed(4, 5)}, units.Memory)
	if err != nil || len(report.Series) != 1 || len(report.Mean) != 1 {
		t.Fatalf("Run = %+v, %v; want one score and one mean", report, err)
	}

	got := report.Series[0]
	use := 2 * (23*2 + 6.0)
	for what, pair := range map[string][2]float64{
		"slack": {got.Slack, 1 - use/(48*4)}, "violation": {got.Violation, 2.0 / 48}, "overrun": {got.Overrun, 4 / use},
		"oomDays": {*got.OOMDays, 2}, "changes": {got.Changes, 0}, "mean": {report.Mean[0].Slack, got.Slack},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%s = %v, want %v", what, pair[0], pair[1])
		}
	}
}

// TestCostAndStretchesByHand checks the figures that users read: what is paid for the need, and how long it is not covered.
func TestCostAndStretchesByHand(t *testing.T) {
	// Of two scored days, each has one sample of 6 and two of 5 in a row before it; the second has a gap between these.
	s := hourly(9, func(hour int) float64 {
		switch {
		case hour == 8*24+11:
			return series.Gap()
		case hour%24 == 10 || hour%24 == 11:
			return 5
		case hour%24 == 12:
			return 6
		}

		return 2
	})

	report, err := Run([]Named{{"a", s}}, []Rule{fixed(4, 0)}, units.CPU)
	if err != nil {
		t.Fatal(err)
	}

	got := report.Series[0]
	if math.Abs(got.Cost-4.0/6) > 1e-12 || math.Abs(got.MinutesAbove-5.0/47*1440) > 1e-9 || got.LongestAbove != 180 {
		t.Errorf("%+v: want cost 2/3, %v minutes a day, the longest 180", got, 5.0/47*1440)
	}
}

// TestIdleSeriesAreLeftOut checks that a request of zero does not count as one without slack, for no rule of the report.
func TestIdleSeriesAreLeftOut(t *testing.T) {
	// Too few samples above zero for gocrane's quantile, which requests nothing; others request something.
	idle := hourly(12, func(hour int) float64 { return map[bool]float64{true: 3}[hour%(24*7) == 30] })
	busy := hourly(12, func(hour int) float64 { return 1 + float64(hour%2) })

	rules, err := Rules(units.CPU, "gocrane", "krr-p99")
	if err != nil {
		t.Fatal(err)
	}

	report, err := Run([]Named{{"idle", idle}, {"busy", busy}}, append(rules, fixed(1, 0)), units.CPU)
	if err != nil || len(report.Series) != 3 || len(report.LeftOut) != 1 || report.LeftOut[0] != "idle" {
		t.Fatalf("Run = %+v, %v; want the scores of busy, and idle left out", report, err)
	}

	for i, mean := range report.Mean {
		if mean.Slack != report.Series[i].Slack {
			t.Errorf("mean %+v, want the slack %v of the busy series alone", mean, report.Series[i].Slack)
		}
	}
}

// TestWeightedMeansCountMoney checks that a large series counts by its size in one mean and not in the other.
func TestWeightedMeansCountMoney(t *testing.T) {
	small := hourly(9, func(int) float64 { return 1 })
	large := hourly(9, func(int) float64 { return 9 })
	report, err := Run([]Named{{"small", small}, {"large", large}}, []Rule{fixed(4, 0)}, units.CPU)
	if err != nil {
		t.Fatal(err)
	}

	mean := report.Mean[0]
	weighted := report.Weighted[0]
	if math.Abs(mean.Violation-0.5) > 1e-12 || math.Abs(weighted.Violation-0.9) > 1e-12 {
		t.Errorf("violation %v and %v, want .5 and .9 by size", mean.Violation, weighted.Violation)
	}
	if math.Abs(mean.Cost-4.0/3) > 1e-12 || math.Abs(weighted.Cost-0.8) > 1e-12 {
		t.Errorf("cost %v and %v, want 4/3 (geometric) and .8 by size", mean.Cost, weighted.Cost)
	}
}

func TestChangesCountMoves(t *testing.T) {
	requests := []float64{1, 1.05, 1.2, 1.2, 0.6}
	day := 0
	rule := Rule{Name: "moving", Decide: func(History) Sizes { day++; return Sizes{Request: requests[day-1]} }}

	report, err := Run([]Named{{"a", hourly(12, func(int) float64 { return 0.5 })}}, []Rule{rule}, units.CPU)
	if err != nil || math.Abs(report.Series[0].Changes-2.0/5) > 1e-12 {
		t.Errorf("%+v, %v: want 2 moves in 5 days", report, err)
	}
	if report.Series[0].OOMDays != nil {
		t.Errorf("OOMDays of CPU = %v, want nil", *report.Series[0].OOMDays)
	}
}

func TestDecidesFromThePastOnly(t *testing.T) {
	rule := Rule{Name: "check", Decide: func(past History) Sizes {
		if !past.Samples.End().Equal(past.Now) {
			t.Errorf("at %v the samples end at %v, want the same time", past.Now, past.Samples.End())
		}

		for _, d := range past.Days(14 * 24 * time.Hour) {
			if d.Day.End().After(past.Now) {
				t.Errorf("at %v there is a sketch of %v, want none that ends later", past.Now, d.Day)
			}
		}

		return Sizes{Request: 1}
	}}

	if _, err := Run([]Named{{"a", hourly(10, func(int) float64 { return 1 })}}, []Rule{rule}, units.CPU); err != nil {
		t.Fatal(err)
	}
}

func TestSeriesThatCannotBeScored(t *testing.T) {
	all := []Named{
		{"short", hourly(7, func(int) float64 { return 1 })},
		{"empty", series.Series{}},
		{"gaps", hourly(9, func(int) float64 { return series.Gap() })},
		{"good", hourly(9, func(int) float64 { return 1 })},
	}

	report, err := Run(all, []Rule{fixed(2, 2)}, units.CPU)
	if len(report.Series) != 1 || report.Mean[0].Slack != 0.5 || !errors.Is(err, ErrTooShort) {
		t.Fatalf("Run = %+v, %v; want one score and ErrTooShort", report, err)
	}

	for _, name := range []string{"short", "empty", "gaps"} {
		if !strings.Contains(err.Error(), "series "+name) {
			t.Errorf("Run: error %v, want one of %s too", err, name)
		}
	}

	if report, err := Run(nil, nil, units.CPU); err != nil || report.Series == nil || report.Mean == nil {
		t.Errorf("Run without series = %+v, %v; want empty lists", report, err)
	}
}

func TestOddSeriesGiveFiniteScores(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shapes := []func(int) float64{
		func(int) float64 { return 0 },
		func(int) float64 {
			if rng.Float64() < 0.5 {
				return series.Gap()
			}

			return rng.ExpFloat64()
		},
		func(hour int) float64 { return math.Exp(float64(hour) / 10) },
		func(hour int) float64 { return float64(hour / 24 % 2) },
	}

	for _, resource := range []units.Resource{units.CPU, units.Memory} {
		rules, err := Rules(resource)
		if err != nil {
			t.Fatal(err)
		}

		for i, shape := range shapes {
			report, err := Run([]Named{{"odd", hourly(11, shape)}}, rules, resource)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := json.Marshal(report); err != nil {
				t.Errorf("shape %d: json.Marshal(report): %v, want no error", i, err)
			}

			for _, s := range report.Series {
				if s.Violation < 0 || s.Violation > 1 || s.Slack > 1 || math.IsNaN(s.Slack+s.Overrun+s.Changes) {
					t.Errorf("shape %d: score %+v, want shares of 0 to 1 and finite figures", i, s)
				}
			}
		}
	}
}

func TestRulesByName(t *testing.T) {
	rules, err := Rules(units.CPU, "vpa", "crane-batch")
	if err != nil || len(rules) != 2 || rules[0].Name != "vpa" || rules[1].Name != "crane-batch" {
		t.Errorf("Rules(vpa, crane-batch) = %v, %v; want these two", rules, err)
	}

	for _, c := range []struct {
		resource units.Resource
		name     string
	}{{units.CPU, "default"}, {"disk", "vpa"}} {
		if _, err := Rules(c.resource, c.name); err == nil {
			t.Errorf("Rules(%v) succeeded, want an error", c)
		}
	}
}

// TestPeersAgreeOnSketches holds the formulas on raw samples against the same formulas on sketches, which the evidence
// of a recommendation uses.
func TestPeersAgreeOnSketches(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	s := series.Series{Start: start, Step: time.Minute, Values: make([]float64, 15*1440)}
	for i := range s.Values {
		s.Values[i] = (2 - math.Cos(2*math.Pi*float64(i)/1440)) * math.Exp(0.2*rng.NormFloat64())
	}

	profile := rightsize.NewProfile()
	profile.AddCPU(rightsize.Usage{Series: s})
	profile.AddMemory(rightsize.Usage{Series: s})

	now := s.End()
	past := History{Now: now, Samples: s, profile: profile}
	for _, peer := range rightsize.Peers() {
		for _, resource := range []units.Resource{units.CPU, units.Memory} {
			rules, err := Rules(resource, peer.Name)
			if err != nil {
				t.Fatal(err)
			}

			decide := peer.CPU
			if resource == units.Memory {
				decide = peer.Memory
			}

			exact := rules[0].Decide(past).Request
			sketched := decide(profile.Window(now, peer.Window), now)
			if math.Abs(sketched/exact-1) > 0.02 {
				t.Errorf("%s of %s: %v on sketches, want about %v as on samples", peer.Name, resource, sketched, exact)
			}
		}
	}
}
