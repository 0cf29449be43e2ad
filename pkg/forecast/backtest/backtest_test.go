// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

const day = 24 * time.Hour

func algorithms(t *testing.T, names ...string) []forecast.Algorithm {
	t.Helper()

	var out []forecast.Algorithm
	for _, name := range names {
		a, err := registry.New(name, registry.Options{})
		if err != nil {
			t.Fatal(err)
		}

		out = append(out, a)
	}

	return out
}

// recorder wraps an algorithm, records its inputs and forecasts, and overwrites the history that it received.
type recorder struct {
	forecast.Algorithm
	histories []series.Series
	forecasts []forecast.Forecast
}

func (r *recorder) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	r.histories = append(r.histories, series.Series{Start: history.Start, Step: history.Step, Values: append([]float64(nil), history.Values...)})
	out, err := r.Algorithm.Forecast(history, horizon)
	r.forecasts = append(r.forecasts, out)

	for i := range history.Values {
		history.Values[i] = -1
	}

	return out, err
}

// TestNoOriginSeesTheFuture changes all samples after an origin and expects the same forecast.
func TestNoOriginSeesTheFuture(t *testing.T) {
	clean := families.All()[2].Make(1, 12, 10*time.Minute)
	for _, name := range registry.Names() {
		before := &recorder{Algorithm: algorithms(t, name)[0]}
		if _, err := Run(Config{}, "clean", clean, []forecast.Algorithm{before}); err != nil {
			t.Fatal(err)
		}

		if len(before.histories) != 5 {
			t.Fatalf("%d origins, want 5", len(before.histories))
		}

		poisoned := series.Series{Start: clean.Start, Step: clean.Step, Values: append([]float64(nil), clean.Values...)}
		for i := 9 * 144; i < len(poisoned.Values); i++ {
			poisoned.Values[i] = 1e12 * float64(i)
		}

		after := &recorder{Algorithm: before.Algorithm}
		if _, err := Run(Config{}, "poisoned", poisoned, []forecast.Algorithm{after}); err != nil {
			t.Fatal(err)
		}

		for origin := range 3 { // days 7, 8 and 9
			if end := before.histories[origin].End(); !end.Equal(clean.Start.Add(time.Duration(7+origin) * day)) {
				t.Fatalf("%s: origin %d is at %s, want day %d", name, origin, end, 7+origin)
			}

			for i := range before.forecasts[origin].Values {
				if before.forecasts[origin].Values[i] != after.forecasts[origin].Values[i] {
					t.Fatalf("%s: origin %d: step %d depends on the future, want the same without it", name, origin, i)
				}
			}
		}
	}
}

func TestConfigBoundsWhatAnOriginSees(t *testing.T) {
	r := &recorder{Algorithm: algorithms(t, registry.SeasonalNaive)[0]}
	values := families.All()[0].Make(1, 12, 10*time.Minute)
	results, err := Run(Config{History: 3 * day, Horizon: 6 * time.Hour, Every: 12 * time.Hour, First: 4 * day}, "x", values,
		[]forecast.Algorithm{r})
	if err != nil {
		t.Fatal(err)
	}

	if results[0].Origins != 16 || results[0].Issued != 16 || results[0].Points != 16*36 {
		t.Errorf("Run = %+v, want 16 origins with 36 points each", results[0])
	}

	for _, s := range r.histories {
		if len(s.Values) != 3*144 {
			t.Fatalf("an origin sees %d samples, want %d", len(s.Values), 3*144)
		}
	}
}

// perfect returns the actual future.
type perfect struct {
	truth series.Series
	shift float64
}

func (perfect) Name() string { return "perfect" }

func (p perfect) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	out := forecast.Forecast{Start: history.End(), Step: history.Step}
	for i := range forecast.Steps(horizon, history.Step) {
		at := int(out.Start.Sub(p.truth.Start)/history.Step) + i
		out.Values = append(out.Values, forecast.Constant(p.truth.Values[at]+p.shift))
	}

	return out, nil
}

func TestFigures(t *testing.T) {
	truth := series.Series{Start: time.Unix(0, 0), Step: time.Hour, Values: make([]float64, 10*24)}
	for i := range truth.Values {
		truth.Values[i] = 10
	}

	truth.Values[8*24+3] = math.NaN() // a gap is no point
	now := time.Unix(0, 0)

	cfg := Config{Clock: func() time.Time { now = now.Add(3 * time.Millisecond); return now }}
	for _, c := range []struct {
		shift, wape, pinball, coverage float64
	}{{0, 0, 0, 1}, {1, 0.1, 0.005, 1}, {-1, 0.1, 0.095, 0}} {
		results, err := Run(cfg, "flat", truth, []forecast.Algorithm{perfect{truth, c.shift}})
		if err != nil {
			t.Fatal(err)
		}

		r := results[0]
		for _, f := range []struct {
			name      string
			got, want float64
		}{
			{"wape", float64(r.WAPE), c.wape},
			{"pinball", float64(r.Pinball), c.pinball},
			{"coverage", float64(r.Coverage), c.coverage},
			{"fit", float64(r.FitMillis), 3},
		} {
			if math.Abs(f.got-f.want) > 1e-9 {
				t.Errorf("shift %v: %s %v, want %v", c.shift, f.name, f.got, f.want)
			}
		}

		if r.Points != 3*24-1 || r.Origins != 3 {
			t.Errorf("%d points at %d origins, want %d at 3", r.Points, r.Origins, 3*24-1)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"quantile": {Quantile: 0.2}, "history": {History: -1}, "horizon": {Horizon: -1}, "every": {Every: -1},
	} {
		if _, err := Run(cfg, "x", series.Series{}, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Run(%s below its range): error %v, want one with its name", name, err)
		}
	}

	results, err := Run(Config{}, "empty", series.Series{}, algorithms(t, registry.Auto))
	if err != nil || results[0].Origins != 0 {
		t.Errorf("Run of an empty series = %+v, %v; want results without origins", results, err)
	}
}

func TestReportIsJSON(t *testing.T) {
	report := NewReport([]Result{
		{Name: "a", Algorithm: "x", Origins: 1, Issued: 1, WAPE: 0.5, Skill: 0.5, WAPERatio: 0.5, PinballRatio: 0.5},
		{Name: "b", Algorithm: "x", Origins: 1, WAPE: Figure(math.NaN()), Skill: Figure(math.NaN()), WAPERatio: Figure(math.NaN()), PinballRatio: Figure(math.NaN())},
	})

	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{`"series":[{"name":"a"`, `"wape":null`, `"mean":[{"algorithm":"x"`, `"pinballRatio":0.5`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %s", data, want)
		}
	}
}
