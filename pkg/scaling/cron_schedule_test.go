// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
)

// randomCron returns a cron expression with every kind of field.
func randomCron(r *rand.Rand) string {
	field := func(low, high int) string {
		switch r.IntN(5) {
		case 0:
			return "*"
		case 1:
			return fmt.Sprintf("*/%d", 1+r.IntN(15))
		case 2:
			first := low + r.IntN(high-low+1)
			return fmt.Sprintf("%d-%d", first, min(high, first+r.IntN(5)))
		default:
			return fmt.Sprint(low + r.IntN(high-low+1))
		}
	}

	day, weekday, month := "*", "*", "*"
	if r.IntN(3) == 0 {
		day = field(1, 31)
	}
	if r.IntN(3) == 0 {
		weekday = field(0, 6)
	}
	if r.IntN(3) == 0 {
		month = field(1, 12)
	}

	return field(0, 59) + " " + field(0, 23) + " " + day + " " + month + " " + weekday
}

// TestLastScheduled compares the latest time of random schedules with the times that the cron library lists.
func TestLastScheduled(t *testing.T) {
	const seed = 22

	r := rand.New(rand.NewPCG(seed, seed))
	for range 5000 {
		text := randomCron(r)
		parsed, err := cron.ParseStandard(text)
		if err != nil {
			t.Fatal(err)
		}

		schedule, ok := parsed.(*cron.SpecSchedule)
		if !ok {
			t.Fatalf("ParseStandard(%q) is a %T, want a SpecSchedule", text, parsed)
		}

		schedule.Location = time.UTC
		wall := time.Date(2020+r.IntN(10), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)
		got, found := lastScheduled(schedule, wall)
		if !found {
			if next := schedule.Next(wall.AddDate(-4, 0, 0)); !next.IsZero() && !next.After(wall) {
				t.Errorf("lastScheduled(%q) before %s finds none, want one since %s", text, wall, next)
			}

			continue
		}

		// It is a time of the schedule, and none follows up to wall.
		if at := schedule.Next(got.Add(-time.Second)); !at.Equal(got) {
			t.Errorf("lastScheduled(%q) before %s = %s, want a time of the schedule as %s", text, wall, got, at)
		}
		if next := schedule.Next(got); got.After(wall) || !next.IsZero() && !next.After(wall) {
			t.Errorf("lastScheduled(%q) before %s = %s, want the last one: %s follows", text, wall, got, next)
		}
	}
}

// BenchmarkCronWindow measures windows that are open soon, and some that open rarely.
func BenchmarkCronWindow(b *testing.B) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, c := range [][2]string{
		{"0 8 * * 1-5", "0 18 * * 1-5"}, {"* 8 * * *", "* 18 * * *"}, {"* * * 1 *", "0 0 1 2 *"}, {"*/5 * * 12 *", "0 0 1 1 *"}, {"0 0 29 2 *", "0 0 1 3 *"},
	} {
		w, err := NewCronWindow("w", c[0], c[1], time.UTC, 3)
		if err != nil {
			b.Fatal(err)
		}

		b.Run("open/"+c[0], func(b *testing.B) {
			for b.Loop() {
				w.IsOpen(now)
			}
		})
		b.Run("next/"+c[0], func(b *testing.B) {
			for b.Loop() {
				w.Next(now)
			}
		})
	}
}
