// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"math"
	"strings"
	"testing"
	"time"
)

// testPrice is a price in minutes for a replica hour.
const testPrice = 0.5

func plant() Plant {
	return Plant{Capacity: 1, Target: 0.7, Lag: 3 * time.Minute, StabilizationWindow: 5 * time.Minute}
}

// days returns a ledger after n days of a load that jumps from 5 to 20 for an hour, with the forecasts returned by
// say.
func days(t *testing.T, n int, say func(at time.Time, level Level) (float64, bool)) *Ledger {
	t.Helper()

	l, err := NewLedger(plant())
	if err != nil {
		t.Fatal(err)
	}

	for m := range n * 24 * 60 {
		at := noon().Add(time.Duration(m) * time.Minute)
		l.Observe(at, jump(at), func(level Level) (float64, bool) { return say(at, level) })
	}

	return l
}

func jump(at time.Time) float64 {
	if at.Hour() == 14 {
		return 20
	}

	return 5
}

func TestChoose_ForecastThatPays(t *testing.T) {
	l := days(t, 4, func(at time.Time, _ Level) (float64, bool) {
		return max(jump(at), jump(at.Add(4*time.Minute))), true
	})

	c := l.Choose(testPrice)
	if !c.Use || c.SparedShortage < 0.9 || c.ExtraCost > 0.1 {
		t.Errorf("Choose with a correct forecast = %+v, want 0.9 or more spared for at most 0.1", c)
	}
}

func TestChoose_ForecastThatDoesNotPay(t *testing.T) {
	for name, c := range map[string]struct {
		days int
		say  func(time.Time, Level) (float64, bool)
		want string
	}{
		"a forecast that never knows": {4, func(time.Time, Level) (float64, bool) { return 5, true }, "not worth"},
		"one that always cries wolf":  {4, func(time.Time, Level) (float64, bool) { return 30, true }, "not worth"},
		"none at all":                 {4, func(time.Time, Level) (float64, bool) { return 0, false }, "not worth"},
		"NaN":                         {4, func(time.Time, Level) (float64, bool) { return math.NaN(), true }, "not worth"},
		"a past of less than a day":   {0, nil, "learning"},
	} {
		l := days(t, c.days, c.say)
		got := l.Choose(testPrice)
		want := strings.Replace(c.want, "not worth", "no level of the forecast was worth", 1)
		if got.Use || !strings.Contains(got.Reason, want) {
			t.Errorf("%s: %+v, want none because %q", name, got, want)
		}
	}
}

// TestLedger_BetweenSamples checks that a request is valid until the next sample, even without a stabilization window.
func TestLedger_BetweenSamples(t *testing.T) {
	p := plant()
	p.StabilizationWindow = 0

	p.Lag = 95 * time.Second
	l, err := NewLedger(p)
	if err != nil {
		t.Fatal(err)
	}

	for m := range 3 * 24 * 60 {
		at := noon().Add(time.Duration(m) * time.Minute)
		l.Observe(at, jump(at), func(Level) (float64, bool) { return max(jump(at), jump(at.Add(3*time.Minute))), true })
	}

	if c := l.Choose(testPrice); !c.Use || l.observed < 70*time.Hour {
		t.Errorf("%s observed, Choose = %+v, want 70h or more and a level", l.observed, c)
	}
}

// TestLedger_ActualBalance checks that the choices of the past are accounted as they were made.
func TestLedger_ActualBalance(t *testing.T) {
	l := days(t, 4, func(at time.Time, _ Level) (float64, bool) { return max(jump(at), jump(at.Add(4*time.Minute))), true })
	if c := l.Choose(testPrice); !c.Use || c.Actual != (Balance{}) {
		t.Fatalf("Choose before any level was in use = %+v, want no actual balance", c)
	}

	for m := range 4 * 24 * 60 {
		at := noon().Add(4*24*time.Hour + time.Duration(m)*time.Minute)
		l.Observe(at, jump(at), func(Level) (float64, bool) { return max(jump(at), jump(at.Add(4*time.Minute))), true })
	}

	if c := l.Choose(testPrice); c.Actual.SparedShortage < 0.5 || c.Actual.SparedShortage > 0.9 || !(c.Actual.ExtraCost > 0) {
		t.Errorf("Choose after days with and without a level = %+v, want 0.5 to 0.9 spared in fact", c)
	}
}

// TestLedger_CoarseSamples checks that a sample of five minutes counts as under capacity until the pods are ready, and no
// longer.
func TestLedger_CoarseSamples(t *testing.T) {
	l, err := NewLedger(plant())
	if err != nil {
		t.Fatal(err)
	}

	for i := range 2 * 24 * 12 {
		at := noon().Add(time.Duration(i) * 5 * time.Minute)
		l.Observe(at, jump(at), func(Level) (float64, bool) { return 0, false })
	}

	// Two jumps, each short for the lag of 3 minutes; the first has lost part of its weight.
	if got := l.reactive.shortageSeconds; got < 250 || got > 360 {
		t.Errorf("%v s under capacity in two jumps of three minutes, want 250 to 360", got)
	}
}

// TestLedger_LowerTarget checks that a lower target is reported where it is better, and never selected.
func TestLedger_LowerTarget(t *testing.T) {
	l, err := NewLedger(plant())
	if err != nil {
		t.Fatal(err)
	}

	for m := range 4 * 24 * 60 {
		at := noon().Add(time.Duration(m) * time.Minute)
		load := 7.0
		if m%97 < 6 { // above the capacity of the HPA at its target, and within that of a lower one
			load = 11
		}

		l.Observe(at, load, func(level Level) (float64, bool) { return 60, level == PlainPlan() })
	}

	c := l.Choose(0.01)
	if !c.Use || c.Level != PlainPlan() || !strings.Contains(c.Reason, "a target of the HPA") {
		t.Errorf("Choose = %+v, want the plain plan and a reason that names the better target", c)
	}
	if c := l.Choose(10); c.Use {
		t.Errorf("Choose at a high price = %+v, want no level", c)
	}
}

func TestLedger_Bounded(t *testing.T) {
	l, err := NewLedger(plant())
	if err != nil {
		t.Fatal(err)
	}

	for s := range 20_000 {
		at := noon().Add(time.Duration(s) * 15 * time.Second)
		l.Observe(at, 5, func(Level) (float64, bool) { return 5, true })
		l.Observe(at, 6, nil)                              // not newer
		l.Observe(at.Add(time.Second), math.NaN(), nil)    // no load
		l.Observe(at.Add(2*time.Second), math.Inf(1), nil) // no load
		l.Observe(at.Add(3*time.Second), -1, nil)          // no load
	}

	if len(l.requests) > 40 {
		t.Errorf("%d requests are kept, want at most the 40 of 8 minutes", len(l.requests))
	}
	if c := l.Choose(testPrice); c.Use || !strings.Contains(c.Reason, "never under capacity") {
		t.Errorf("Choose without time under capacity = %+v, want no level", c)
	}
}

func TestNewLedger_Invalid(t *testing.T) {
	for _, p := range []Plant{
		{Capacity: 0, Target: 0.7},
		{Capacity: math.NaN(), Target: 0.7},
		{Capacity: 1, Target: 0},
		{Capacity: 1, Target: 1.1},
		{Capacity: 1, Target: 0.7, Lag: -1},
		{Capacity: 1, Target: 0.7, Lag: 4 * time.Hour},
	} {
		if _, err := NewLedger(p); err == nil {
			t.Errorf("NewLedger(%+v) succeeds, want an error", p)
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
		l.Observe(at, 5, func(Level) (float64, bool) { return 5, true })
	}
}
