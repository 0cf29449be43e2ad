// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"math"
	"strconv"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// traces returns the production traces, and skips the test where they are absent.
func traces(t *testing.T) map[string]series.Series {
	t.Helper()

	out := map[string]series.Series{}
	for _, s := range families.Traces().Read(t, 1) {
		out[s.Name] = s.Series
	}

	return out
}

// TestBaselinesOnTraces checks the backtest itself against known figures of the baselines.
func TestBaselinesOnTraces(t *testing.T) {
	var results []Result
	for name, values := range traces(t) {
		scored, err := Run(Config{}, name, values, algorithms(t, registry.Plain, registry.SeasonalNaive))
		if err != nil {
			t.Fatal(err)
		}

		results = append(results, scored...)
	}

	want := map[string][2]float64{registry.Plain: {0.361, 0.153}, registry.SeasonalNaive: {0.402, 0.239}}
	for _, m := range NewReport(results).Mean {
		w := want[m.Algorithm]
		if m.Issued != 63 || math.Abs(float64(m.WAPE)-w[0]) > 0.001 || math.Abs(float64(m.Pinball)-w[1]) > 0.001 {
			t.Errorf("%s: %d issued, WAPE %.4f, pinball %.4f; want 63, %v", m.Algorithm, m.Issued, m.WAPE, m.Pinball, w)
		}
	}
}

// TestGocraneOnTraces checks that gocrane's method declines where the autocorrelation at a hint is negative.
func TestGocraneOnTraces(t *testing.T) {
	all := traces(t)
	for _, name := range []string{"workload-4", "workload-6"} {
		scored, err := Run(Config{First: 14 * 24 * time.Hour}, name, all[name], algorithms(t, registry.GocraneDSP))
		if err != nil {
			t.Fatal(err)
		}

		if scored[0].Issued != 0 || scored[0].Origins == 0 {
			t.Errorf("%s: gocrane-dsp issues at %d of %d origins, want none", name, scored[0].Issued, scored[0].Origins)
		}
	}
}

// bounds are the required scores of auto.
type bounds struct {
	mean           float64 // geometric mean over series of the ratio to plain
	worst, apart   float64 // any single series, and those reported separately
	pooled, single [2]float64
}

func check(t *testing.T, b bounds, results []Result, apart map[string]bool) {
	t.Helper()

	covered, points := 0.0, 0.0
	var wape, pinball average
	for _, r := range results {
		t.Logf("%-28s wape %.3f (x%.3f) pinball %.4f (x%.3f) coverage %.3f", r.Name, r.WAPE, r.WAPERatio, r.Pinball, r.PinballRatio, r.Coverage)
		if r.Issued != r.Origins {
			t.Errorf("%s: %d origins issued, want %d", r.Name, r.Issued, r.Origins)
		}

		wape.addLog(r.WAPERatio)
		pinball.addLog(r.PinballRatio)

		limit := b.worst
		if apart[r.Name] {
			limit = b.apart
		}
		if worst := max(float64(r.WAPERatio), float64(r.PinballRatio)); worst > limit {
			t.Errorf("%s: %.3f times plain, want at most %v", r.Name, worst, limit)
		}

		if apart[r.Name] {
			continue
		}

		covered += float64(r.Coverage) * float64(r.Points)
		points += float64(r.Points)

		if c := float64(r.Coverage); r.Origins >= 5 && (c < b.single[0] || c > b.single[1]) {
			t.Errorf("%s: coverage %.3f, want %v", r.Name, c, b.single)
		}
	}

	t.Logf("geometric means: wape x%.3f pinball x%.3f; pooled coverage %.3f", wape.geometric(), pinball.geometric(), covered/points)
	if w, p := float64(wape.geometric()), float64(pinball.geometric()); w > b.mean || p > b.mean {
		t.Errorf("wape x%.3f, pinball x%.3f of plain, want at most %v", w, p, b.mean)
	}
	if c := covered / points; c < b.pooled[0] || c > b.pooled[1] {
		t.Errorf("pooled coverage %.3f, want %v", c, b.pooled)
	}
}

func autoResults(t *testing.T, name string, values series.Series) Result {
	t.Helper()

	results, err := Run(Config{Reference: registry.Plain}, name, values, algorithms(t, registry.Auto, registry.Plain))
	if err != nil {
		t.Fatal(err)
	}

	return results[0]
}

func TestAutoOnTraces(t *testing.T) {
	var results []Result
	for name, values := range traces(t) {
		results = append(results, autoResults(t, name, values))
	}

	check(t, bounds{mean: 0.85, worst: 1.05, apart: 1.15, pooled: [2]float64{0.93, 0.97}, single: [2]float64{0.90, 0.99}}, results,
		map[string]bool{"workload-4": true, "workload-6": true})
}

// TestAutoOnFamilies applies looser bounds to series that were not used in development: new seeds, another step.
func TestAutoOnFamilies(t *testing.T) {
	var results []Result
	apart := map[string]bool{}
	for _, f := range families.All() {
		for seed := range uint64(2) {
			name := f.Name + " " + strconv.FormatUint(seed, 10)
			results = append(results, autoResults(t, name, f.Make(100+seed, 15, 5*time.Minute)))
			apart[name] = f.Shifts
		}
	}

	check(t, bounds{mean: 0.85, worst: 1.55, apart: 2, pooled: [2]float64{0.93, 0.97}, single: [2]float64{0.65, 1}}, results, apart)
}
