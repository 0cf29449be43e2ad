// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/backtest"
	"crane.io/crane/test/families"
)

// TestSkillIsThatOfTheBacktest compares the skill of a forecast with the backtest of the same 14 days.
func TestSkillIsThatOfTheBacktest(t *testing.T) {
	for _, name := range []string{Auto, DSP} {
		algorithm, err := New(name, Options{})
		if err != nil {
			t.Fatal(err)
		}

		for _, family := range families.All() {
			history := family.Make(1, 14, 5*time.Minute)
			f, err := algorithm.Forecast(history, day)
			if err != nil {
				t.Fatal(err)
			}

			replayed, err := backtest.Run(backtest.Config{}, family.Name, history, []forecast.Algorithm{algorithm})
			if err != nil {
				t.Fatal(err)
			}

			r := replayed[0]
			if f.Reason != "" {
				continue // percentile, a constant
			}

			// auto weights its replays by the older ones of the same week, the backtest by a week of its own for each origin. That
			// matters where the load follows no clock.
			tolerance := 0.15
			if family.Name == "random walk" || family.Name == "ramps and restarts" {
				tolerance = 0.4
			}
			if f.Origins != r.Origins || !(math.Abs(f.Skill-float64(r.Skill)) <= tolerance) {
				t.Errorf("%s %s: skill %.2f of %d origins, want %.2f of %d as in the backtest", name, family.Name, f.Skill, f.Origins, r.Skill, r.Origins)
			}
		}
	}
}
