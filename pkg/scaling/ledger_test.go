// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"math"
	"strings"
	"testing"
	"time"
)

func plant() Plant {
	return Plant{Capacity: 1, Target: 0.7, Lag: 3 * time.Minute, StabilizationWindow: 5 * time.Minute}
}

// days returns a ledger after n days of a load that jumps from 5 to 20 for an hour, with the forecasts returned by
// say.
func days(t *testing.T, n int, say func(at time.Time, q float64) (float64, bool)) *Ledger {
	t.Helper()
	l, err := NewLedger(plant())
	if err != nil {
		t.Fatal(err)
	}
	for m := range n * 24 * 60 {
		at := noon().Add(time.Duration(m) * time.Minute)
		l.Observe(at, jump(at), func(q float64) (float64, bool) { return say(at, q) })
	}
	return l
}

func jump(at time.Time) float64 {
	if at.Hour() == 14 {
		return 20
	}
	return 5
}

func TestLedgerChoosesWhatSpares(t *testing.T) {
	l := days(t, 4, func(at time.Time, _ float64) (float64, bool) {
		return max(jump(at), jump(at.Add(4*time.Minute))), true
	})
	c := l.Choose(SeasonalBudget)
	if !c.Use || c.SparedShortage < 0.9 || c.ExtraCost > SeasonalBudget {
		t.Errorf("a forecast that is right: %+v", c)
	}
}

func TestLedgerIgnoresWhatDoesNotPay(t *testing.T) {
	for name, c := range map[string]struct {
		days int
		say  func(time.Time, float64) (float64, bool)
		want string
	}{
		"a forecast that never knows": {4, func(time.Time, float64) (float64, bool) { return 5, true }, "not worth"},
		"one that always cries wolf":  {4, func(time.Time, float64) (float64, bool) { return 30, true }, "not worth"},
		"none at all":                 {4, func(time.Time, float64) (float64, bool) { return 0, false }, "not worth"},
		"NaN":                         {4, func(time.Time, float64) (float64, bool) { return math.NaN(), true }, "not worth"},
		"a past of less than a day":   {0, nil, "learning"},
	} {
		l := days(t, c.days, c.say)
		got := l.Choose(SeasonalBudget)
		want := strings.Replace(c.want, "not worth", "no level of the forecast was worth", 1)
		if got.Use || !strings.Contains(got.Reason, want) {
			t.Errorf("%s: %+v, want none because %q", name, got, want)
		}
	}
}

// TestLedgerBooksBetweenSamples checks that a request is valid until the next sample, even without a stabilization window.
func TestLedgerBooksBetweenSamples(t *testing.T) {
	p := plant()
	p.StabilizationWindow, p.Lag = 0, 95*time.Second
	l, err := NewLedger(p)
	if err != nil {
		t.Fatal(err)
	}
	for m := range 3 * 24 * 60 {
		at := noon().Add(time.Duration(m) * time.Minute)
		l.Observe(at, jump(at), func(float64) (float64, bool) { return max(jump(at), jump(at.Add(3*time.Minute))), true })
	}
	if c := l.Choose(SeasonalBudget); !c.Use || l.observed < 70*time.Hour {
		t.Errorf("%s seen, %+v", l.observed, c)
	}
}

func TestLedgerIsBounded(t *testing.T) {
	l, err := NewLedger(plant())
	if err != nil {
		t.Fatal(err)
	}
	for s := range 20_000 {
		at := noon().Add(time.Duration(s) * 15 * time.Second)
		l.Observe(at, 5, func(float64) (float64, bool) { return 5, true })
		l.Observe(at, 6, nil)                              // not newer
		l.Observe(at.Add(time.Second), math.NaN(), nil)    // no load
		l.Observe(at.Add(2*time.Second), math.Inf(1), nil) // no load
		l.Observe(at.Add(3*time.Second), -1, nil)          // no load
	}
	if len(l.requests) > 40 {
		t.Errorf("keeps %d requests for a reach of 8 minutes", len(l.requests))
	}
	if c := l.Choose(0.1); c.Use || !strings.Contains(c.Reason, "never under capacity") {
		t.Errorf("nothing to spare: %+v", c)
	}
}

func TestNewLedgerRefuses(t *testing.T) {
	for _, p := range []Plant{
		{Capacity: 0, Target: 0.7},
		{Capacity: math.NaN(), Target: 0.7},
		{Capacity: 1, Target: 0},
		{Capacity: 1, Target: 1.1},
		{Capacity: 1, Target: 0.7, Lag: -1},
		{Capacity: 1, Target: 0.7, Lag: 4 * time.Hour},
	} {
		if _, err := NewLedger(p); err == nil {
			t.Errorf("takes %+v", p)
		}
	}
}

func BenchmarkLedgerObserve(b *testing.B) {
	l, err := NewLedger(plant())
	if err != nil {
		b.Fatal(err)
	}
	at := noon()
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(15 * time.Second)
		l.Observe(at, 5, func(float64) (float64, bool) { return 5, true })
	}
}
