// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/series"
)

func config() Config {
	return Config{
		Capacity: 1, Target: 0.7, Startup: time.Minute, Delay: metricDelay, Sync: syncPeriod, Tolerance: scaling.DefaultTolerance(),
		Behavior: scaling.DefaultBehavior(stabilizationWindow), Bounds: scaling.Bounds{Min: 1, Max: 1000}, Warmup: time.Hour,
	}
}

// minutes returns a series with a value each minute.
func minutes(n int, value func(minute int) float64) series.Series {
	s := series.Series{Start: time.Date(2024, 5, 6, 0, 0, 0, 0, time.UTC), Step: time.Minute}
	for m := range n {
		s.Values = append(s.Values, value(m))
	}

	return s
}

func TestRun_Reactive(t *testing.T) {
	cfg := config()
	// Two hours after the warm-up the load rises from 7 to 28. The HPA reads it 30 s later and scales from 10 to 20 to 40 in two
	// steps. With pods a minute late, the load is above 10 for 90 s, and above 20 for one step more.
	load := minutes(6*60, func(m int) float64 {
		if m >= 3*60 {
			return 28
		}

		return 7
	})

	score, err := Run(cfg, load, Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance})
	if err != nil {
		t.Fatal(err)
	}

	if got, want := score.UnderCapacity, 105*time.Second; got != want {
		t.Errorf("under capacity for %s, want %s", got, want)
	}
	if got, want := score.Scalings, 2; got != want {
		t.Errorf("%d scalings, want %d", got, want)
	}
	if want := 5 * time.Hour; score.Scored != want {
		t.Errorf("scored %s, want %s", score.Scored, want)
	}

	// 2 h and 2 steps at 10, one step at 20, the rest at 40.
	if got, want := score.ReplicaHours, 2*10+3*40-(2*30+20)*15./3600; math.Abs(got-want) > 1e-9 {
		t.Errorf("%v replica hours, want %v", got, want)
	}
}

func TestRun_Gaps(t *testing.T) {
	cfg := config()
	load := minutes(4*60, func(m int) float64 {
		if m >= 2*60 && m < 3*60 {
			return series.Gap()
		}

		return 7
	})

	score, err := Run(cfg, load, Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance})
	if err != nil {
		t.Fatal(err)
	}

	if score.Scored != 2*time.Hour || score.UnderCapacity != 0 || score.Scalings != 0 {
		t.Errorf("Run over a series with a gap = %+v, want 2 scored hours without a change", score)
	}
}

func TestRun_Invalid(t *testing.T) {
	load := minutes(120, func(int) float64 { return 1 })
	for want, change := range map[string]func(*Config){
		"capacity":    func(c *Config) { c.Capacity = 0 },
		"target":      func(c *Config) { c.Target = 1.5 },
		"sync":        func(c *Config) { c.Sync = 0 },
		"negative":    func(c *Config) { c.Startup = -1 },
		"maxReplicas": func(c *Config) { c.Bounds.Max = 0 },
		"shorter":     func(c *Config) { c.Warmup = 2 * time.Hour },
	} {
		cfg := config()
		change(&cfg)

		if _, err := Run(cfg, load, Reactive{Target: 0.7}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

// TestCompare_DailyJump checks that a daily jump is anticipated.
func TestCompare_DailyJump(t *testing.T) {
	load := minutes(10*24*60, func(m int) float64 {
		if hour := m / 60 % 24; hour >= 9 && hour < 17 {
			return 40 + float64(m%7)
		}

		return 5 + float64(m%3)
	})

	plan := Plan{Pods: []int{20}, Startups: []time.Duration{3 * time.Minute}, Target: 0.7, Warmup: 7 * 24 * time.Hour, Budget: 0.1}
	idle := minutes(10*24*60, func(int) float64 { return 0 })
	results, skipped := Compare(plan, []Named{{"office", load}, {"idle", idle}, {"short", minutes(60, func(int) float64 { return 1 })}})
	if len(skipped) != 2 {
		t.Fatalf("Compare skips %v, want the idle and the short series", skipped)
	}

	report := NewReport(results)
	by := map[string]Row{}
	for _, r := range report.Series {
		by[r.Scaler] = r
	}

	if by["reactive"].UnderCapacityMinutes == 0 || by["ehpa"].UnderCapacityMinutes > by["reactive"].UnderCapacityMinutes/3 {
		t.Errorf("under capacity: reactive %v min, ehpa %v min, want at most a third of that", by["reactive"].UnderCapacityMinutes, by["ehpa"].UnderCapacityMinutes)
	}
	if by["ehpa"].ReplicaHours > 1.1*by["reactive"].ReplicaHours {
		t.Errorf("replica hours: reactive %v, ehpa %v, want at most a tenth more", by["reactive"].ReplicaHours, by["ehpa"].ReplicaHours)
	}
	if by["ehpa"].SparedTime == nil || *by["ehpa"].SparedTime < 0.3 || by["ehpa"].Reason == "" || by["oracle"].UnderCapacityMinutes > 0 {
		t.Errorf("ehpa %+v, oracle %+v, want 0.3 or more spared with a reason, and an oracle never under capacity", by["ehpa"], by["oracle"])
	}

	if report.Total[1].Scaler != "ehpa" || *report.Total[1].UnderCapacityRatio > 1./3 {
		t.Errorf("totals %+v, want ehpa second with at most a third of the time under capacity", report.Total)
	}
}

func newFleet(t *testing.T) *scaling.Fleet {
	t.Helper()

	fleet, err := scaling.NewFleet(scaling.DefaultBudget)
	if err != nil {
		t.Fatal(err)
	}

	return fleet
}

// TestCompare_SharedBudget checks that the series of a comparison share the budget: beside a steady one, a bursty one may cost more than
// the budget allows it alone.
func TestCompare_SharedBudget(t *testing.T) {
	bursty := minutes(10*24*60, func(m int) float64 {
		if m%60 < 5+m/60%7 { // half of the hours, in bursts of a few minutes at the start
			return 30
		}

		return 3
	})

	steady := minutes(10*24*60, func(m int) float64 { return 20 + float64(m%3) })
	plan := Plan{Pods: []int{20}, Startups: []time.Duration{3 * time.Minute}, Target: 0.7, Warmup: 7 * 24 * time.Hour, Budget: 0.05}
	score := func(all ...Named) (reactive, ahead Row) {
		results, skipped := Compare(plan, all)
		if len(skipped) > 0 {
			t.Fatalf("Compare skips %v, want none", skipped)
		}

		for _, r := range NewReport(results).Series {
			switch {
			case r.Name == "bursty" && r.Scaler == "reactive":
				reactive = r
			case r.Name == "bursty" && r.Scaler == "ehpa":
				ahead = r
			}
		}

		return reactive, ahead
	}

	base, alone := score(Named{"bursty", bursty})
	_, together := score(Named{"bursty", bursty}, Named{"a", steady}, Named{"b", steady}, Named{"c", steady})

	if alone.ReplicaHours > 1.06*base.ReplicaHours {
		t.Errorf("replica hours: %v alone, reactive %v, want at most 1.06 times as many", alone.ReplicaHours, base.ReplicaHours)
	}
	if together.UnderCapacityMinutes >= alone.UnderCapacityMinutes {
		t.Errorf("under capacity: %v min with the budget of four, %v min alone, want less together", together.UnderCapacityMinutes, alone.UnderCapacityMinutes)
	}
}

// orderCheckingModel fails the test when a model gets samples out of order.
type orderCheckingModel struct {
	t   *testing.T
	m   *auto.Model
	now time.Time
}

func (p *orderCheckingModel) Observe(at time.Time, v float64) {
	if at.Before(p.now) {
		p.t.Errorf("Observe gets a sample of %s after one of %s, want ascending times", at, p.now)
	}

	p.now = at
	p.m.Observe(at, v)
}

func (p *orderCheckingModel) Forecast(h time.Duration) (forecast.Forecast, error) {
	return p.m.Forecast(h)
}

// TestPredictive_NoForesight checks that decisions do not depend on later samples.
func TestPredictive_NoForesight(t *testing.T) {
	cfg := config()
	cfg.Warmup = 48 * time.Hour
	const cut = 60 * 60

	run := func(future float64) []int32 {
		load := minutes(4*24*60, func(m int) float64 {
			if m >= cut {
				return future
			}

			return 10 + 8*math.Sin(float64(m)/229)
		})

		ahead, err := NewPredictive(cfg, &orderCheckingModel{t: t, m: auto.NewModel(time.Minute)}, newFleet(t), "web")
		if err != nil {
			t.Fatal(err)
		}

		rec := &recordingScaler{Scaler: ahead, until: load.Time(cut)}
		if _, err := Run(cfg, load, rec); err != nil {
			t.Fatal(err)
		}

		return rec.current
	}

	a := run(1)
	b := run(500)
	if len(a) == 0 || len(a) != len(b) {
		t.Fatalf("%d and %d steps before the cut, want the same number", len(a), len(b))
	}

	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("step %d: %d and %d replicas with one past and two futures, want the same", i, a[i], b[i])
		}
	}
}

type recordingScaler struct {
	Scaler
	until   time.Time
	current []int32
}

func (r *recordingScaler) Propose(v ScalerInput) ([]scaling.Proposal, int32) {
	if v.Now.Before(r.until) {
		r.current = append(r.current, v.Current)
	}

	return r.Scaler.Propose(v)
}
