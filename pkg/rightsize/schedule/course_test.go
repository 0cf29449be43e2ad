// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

func minute(n int) time.Time { return midnight.Add(time.Duration(n) * time.Minute) }

func steady(t *testing.T) *Course {
	t.Helper()
	f := forecastOf(midnight, time.Minute, 1440, 0.05, func(int) float64 { return 1 })
	return NewCourse(mustPlan(t, f, 0, DefaultSettings()), DefaultSettings(), nil)
}

func TestReactionComesAfterTheDelayAndGoes(t *testing.T) {
	c := steady(t)
	plan, _ := c.Request(minute(0))
	c.Observe(minute(10), 3)

	if got, _ := c.Request(minute(11)); got != plan {
		t.Errorf("a minute after use passed the request it is %v", got)
	}

	got, why := c.Request(minute(12))
	if math.Abs(got-3.3) > 1e-9 || !strings.Contains(why, "reaction 1 of 6: use reached 3 at 00:10") {
		t.Errorf("%v: %s", got, why)
	}

	// At 02:00 the hour before last still holds the peak; at 03:00 it does not.
	for m := 11; m < 178; m++ {
		c.Observe(minute(m), 1)
		if now, _ := c.Request(minute(m + 2)); m+2 < 180 && now != got {
			t.Fatalf("given up at minute %d", m+2)
		}
	}

	if now, why := c.Request(minute(180)); now >= got || now < got/2 || !strings.Contains(why, "down from 3.3") {
		t.Errorf("at 03:00: %v, %s", now, why)
	}

	for m := 178; m < 600; m++ {
		c.Observe(minute(m), 1)
		c.Request(minute(m + 2))
	}

	if now, _ := c.Request(minute(602)); now != plan {
		t.Errorf("at last %v, the plan is %v", now, plan)
	}
}

func TestOneSampleAloneIsNoReason(t *testing.T) {
	c := steady(t)
	plan, _ := c.Request(minute(0))
	for _, m := range []int{10, 25, 40} {
		c.Observe(minute(m), plan*1.1)
		if got, _ := c.Request(minute(m + 2)); got != plan {
			t.Errorf("minute %d: %v", m+2, got)
		}
	}

	c.Observe(minute(45), plan*1.05)
	if got, _ := c.Request(minute(47)); math.Abs(got-plan*1.1*1.1) > 1e-9 {
		t.Errorf("after two samples within ten minutes: %v, want %v", got, plan*1.1*1.1)
	}
}

func TestReactionIsNotNeededWhereThePlanGoesUp(t *testing.T) {
	c := NewCourse(mustPlan(t, forecastOf(midnight, time.Minute, 1440, 0.05, plateau), 0, DefaultSettings()), DefaultSettings(), nil)
	c.Request(minute(538))
	c.Observe(minute(538), 3)

	planned, _ := c.plan.At(minute(540))
	if got, _ := c.Request(minute(540)); got != planned.Request || c.Reactions() != 0 {
		t.Errorf("%v, planned %v, %d reactions", got, planned.Request, c.Reactions())
	}
}

// TestBudgetsHold follows random usage over many days and counts the changes by reason.
func TestBudgetsHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	s := DefaultSettings()
	var c *Course

	request := 0.0
	for day := range 60 {
		noisy := math.Exp(rng.NormFloat64())
		start := midnight.Add(time.Duration(day) * 24 * time.Hour)
		f := forecastOf(start, time.Minute, 1440, 0.1, func(i int) float64 { return plateau(i + 60*day) })
		c = NewCourse(mustPlan(t, f, request, s), s, c)

		planned := 0
		reacted := 0
		passed := time.Time{}
		for i := range 1440 {
			at := start.Add(time.Duration(i) * time.Minute)
			if i >= 2 {
				use := plateau(i+60*day) * math.Exp(0.3*noisy*rng.NormFloat64())
				if rng.IntN(20) == 0 {
					use = series.Gap()
				}
				if was, _ := c.plan.At(at.Add(-2 * time.Minute)); use > was.Request && passed.IsZero() {
					passed = at.Add(-2 * time.Minute)
				}

				c.Observe(at.Add(-2*time.Minute), use)
			}

			got, why := c.Request(at)
			if !forecast.Usable(got) || why == "" {
				t.Fatalf("%v: %v, %q", at, got, why)
			}

			switch {
			case got == request || request == 0:
			case strings.HasPrefix(why, "reaction"):
				reacted++

				if passed.IsZero() || at.Sub(passed) < MinDelay {
					t.Fatalf("%v: a reaction to nothing, or too soon", at)
				}

			default:
				planned++

				if at.Minute() != 0 {
					t.Fatalf("%v: a planned change within an hour: %s", at, why)
				}
			}

			request = got
		}

		if planned > MaxChanges || reacted > MaxReactions {
			t.Fatalf("day %d: %d planned changes, %d reactions", day, planned, reacted)
		}
	}
}

func TestCourseWithoutPlan(t *testing.T) {
	c := NewCourse(Plan{}, DefaultSettings(), nil)
	if got, _ := c.Request(midnight); got != 0 {
		t.Errorf("%v", got)
	}

	c.Observe(midnight, math.Inf(1))
	c.Observe(midnight, -1)

	if got, _ := c.Request(midnight.Add(time.Hour)); got != 0 || c.Reactions() != 0 {
		t.Errorf("%v after what no use can be", got)
	}
}
