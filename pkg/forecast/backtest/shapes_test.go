// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"math"
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/series"
	"crane.io/crane/test/families"
)

// TestOddShapes forecasts the last day of loads unlike those that the experts were chosen on: quantiles are in order and within twice the
// highest value of the history, and the 0.95 quantile covers a load whose level does not move.
func TestOddShapes(t *testing.T) {
	const day = 24 * time.Hour
	algorithm := algorithms(t, registry.Auto)[0]
	steady := []string{"bursts", "sparse", "constant", "gaps", "tiny values", "huge values", "15 s", "an hour", "three days", "eight weeks", "negative values"}
	for name, s := range families.Odd() {
		origin := len(s.Values) - int(day/s.Step)
		past := series.Series{Start: s.Start, Step: s.Step, Values: s.Values[:origin]}
		f, err := algorithm.Forecast(past, day)
		if err != nil || len(f.Values) != len(s.Values)-origin {
			t.Fatalf("%s: %d values, error %v; want %d", name, len(f.Values), err, len(s.Values)-origin)
		}

		highest := 0.0
		for _, v := range past.Values {
			if !math.IsInf(v, 0) && v > highest {
				highest = v
			}
		}

		covered, samples := 0.0, 0.0
		for i, q := range f.Values {
			last := 0.0
			for _, v := range q {
				if !(v >= last && v <= 2*highest*(1+1e-6)) {
					t.Fatalf("%s: step %d: %v, want ascending values of at most twice the highest, %g", name, i, q, highest)
				}

				last = v
			}

			if actual := s.Values[origin+i]; forecast.Usable(actual) {
				samples++
				if actual <= q.At(0.95)*(1+1e-6) {
					covered++
				}
			}
		}

		t.Logf("%-40s %.3f of the samples covered", name, covered/samples)
		if slices.Contains(steady, name) && !(covered/samples >= 0.88) {
			t.Errorf("%s: %.3f of the samples covered, want 0.88 or more", name, covered/samples)
		}
	}
}
