// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/scaling"
)

// officeHours returns a load that is five times as high from nine to five.
func officeHours(_ string, at time.Time) float64 {
	if h := at.UTC().Hour(); h >= 9 && h < 17 {
		return 10
	}

	return 2
}

func scalesBy(name string, state []byte) Request {
	r := cpuOf(name)
	r.Scaling = &Scaling{
		Name: "resource.cpu", Window: time.Hour, State: state,
		Plant: scaling.Plant{Capacity: 0.25, Target: 0.6, Lag: 4 * time.Minute, StabilizationWindow: 5 * time.Minute},
	}

	return r
}

// advise publishes a forecast and returns its evaluation.
func advise(t *testing.T, p *Predictor, key Key, caller string) Advice {
	t.Helper()

	all, err := p.Forecast(key, 2*time.Hour)
	if err != nil || len(all) != 1 {
		t.Fatalf("Forecast has %d series, error %v, want 1", len(all), err)
	}

	a, ok := p.Advise(key, caller, "resource.cpu", all[0].Forecast)
	if !ok {
		t.Fatalf("Advise for %s has no evaluator, want one", caller)
	}

	return a
}

// TestAdvise_FirstHistory checks that a history is evaluated when it is read, and that a restart continues
// from the state.
func TestAdvise_FirstHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		source := &fakeSource{use: officeHours}
		p := start(t, source, nil)
		key := p.Set("a", []Request{scalesBy("web", nil)})[0].Key
		time.Sleep(time.Second)
		synctest.Wait()

		first := advise(t, p, key, "a")
		if !first.Use || first.Lead < 4*time.Minute+75*time.Second || first.SparedShortage < 0.5 || first.ExtraCost > scaling.DefaultBudget {
			t.Errorf("Advise after a past of two weeks = %+v, want the forecast in use within the budget", first)
		}

		// A history that starts a moment ago has no information; the state has.
		source.use = func(name string, at time.Time) float64 {
			if at.Before(began.Add(-time.Hour)) {
				return math.NaN()
			}

			return officeHours(name, at)
		}

		for _, c := range []struct {
			state  []byte
			learns bool
		}{{nil, true}, {[]byte("not a state"), true}, {first.State, false}} {
			again := start(t, source, nil)
			key := again.Set("a", []Request{scalesBy("web", c.state)})[0].Key
			time.Sleep(time.Second)
			synctest.Wait()

			got, ok := again.Advise(key, "a", "resource.cpu", forecastNow(t, again, key))
			if learns := strings.Contains(got.Reason, "learning"); !ok || learns != c.learns || got.Use == c.learns {
				t.Errorf("Advise with %d bytes of state = %+v, want the forecast in use unless it is learning", len(c.state), got.Choice)
			}
		}
	})
}

// TestScalingBudget checks that the configured budget bounds what forecasts may cost: none of it selects no level.
func TestScalingBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for budget, want := range map[float64]bool{0: false, scaling.DefaultBudget: true} {
			p := start(t, &fakeSource{use: officeHours}, func(c *Config) { c.ScalingBudget = budget })
			key := p.Set("a", []Request{scalesBy("web", nil)})[0].Key
			time.Sleep(time.Second)
			synctest.Wait()

			if got := advise(t, p, key, "a"); got.Use != want || got.ExtraCost > budget {
				t.Errorf("Advise with budget %v = %+v, want a choice within the budget", budget, got.Choice)
			}
		}
	})
}

// TestEvaluators_PerCaller checks that each caller has, changes and removes its own evaluation.
func TestEvaluators_PerCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, &fakeSource{use: officeHours}, nil)
		key := p.Set("a", []Request{scalesBy("web", nil)})[0].Key
		if other := p.Set("b", []Request{cpuOf("web")}); other[0].Key != key {
			t.Error("Set with an evaluator has another key, want the same series")
		}

		time.Sleep(time.Second)
		synctest.Wait()
		before := advise(t, p, key, "a")

		if _, kept := p.Advise(key, "b", "resource.cpu", forecastNow(t, p, key)); kept {
			t.Error("Advise for b has an evaluator, want none: b requested none")
		}

		bigger := scalesBy("web", nil)
		bigger.Scaling.Plant.Capacity = 0.5
		bigger.Scaling.Plant.Lag = 2 * time.Minute
		p.Set("a", []Request{bigger})

		if after := advise(t, p, key, "a"); after.Level != before.Level || after.Lead > before.Lead {
			t.Errorf("Advise for pods of another size = %+v, then %+v, want the same level and no longer lead", before, after)
		}

		bad := scalesBy("web", nil)
		bad.Scaling.Plant.Target = 7
		if got := p.Set("a", []Request{bad}); got[0].Err == nil {
			t.Error("Set accepts a target of 700 %, want an error")
		}

		p.Forget("a")
		if _, kept := p.Advise(key, "a", "resource.cpu", forecastNow(t, p, key)); kept {
			t.Error("Advise has an evaluator of a caller that has left, want none")
		}
	})
}

func forecastNow(t *testing.T, p *Predictor, key Key) forecast.Forecast {
	t.Helper()

	all, err := p.Forecast(key, 2*time.Hour)
	if err != nil || len(all) != 1 {
		t.Fatalf("Forecast has %d series, error %v, want 1", len(all), err)
	}

	return all[0].Forecast
}
