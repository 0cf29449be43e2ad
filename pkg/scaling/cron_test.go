// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()

	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}

	return l
}

// dailyWindow is a window as minutes of the day and the weekdays on which it opens.
type dailyWindow struct {
	start, end string
	from, to   int // minutes after midnight on the wall clock
	opens      func(time.Weekday) bool
}

// calendar computes by brute force, minute by minute on a wall clock without changes, when the window is open in a year.
func (d dailyWindow) calendar(year int) map[time.Time]bool {
	open := false
	out := make(map[time.Time]bool, 366*24*60)
	for m := time.Date(year-1, 12, 20, 0, 0, 0, 0, time.UTC); m.Year() <= year; m = m.Add(time.Minute) {
		minute := m.Hour()*60 + m.Minute()
		if minute == d.to {
			open = false
		}
		if minute == d.from && d.opens(m.Weekday()) {
			open = true
		}

		out[m] = open
	}

	return out
}

func TestCronWindow_LeapYear(t *testing.T) {
	every := func(time.Weekday) bool { return true }
	weekday := func(d time.Weekday) bool { return d != time.Saturday && d != time.Sunday }
	windows := []dailyWindow{
		{"30 2 * * *", "15 9 * * *", 150, 555, every},
		{"0 22 * * *", "0 6 * * *", 22 * 60, 6 * 60, every},
		{"0 8 * * 1-5", "45 17 * * *", 480, 17*60 + 45, weekday},
		{"30 1 * * *", "30 2 * * *", 90, 150, every},
		{"0 0 * * *", "30 23 * * *", 0, 23*60 + 30, every},
		{"30 23 * * *", "0 0 * * *", 23*60 + 30, 0, every},
	}

	places := []string{
		"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "America/Havana", "Asia/Beirut", "America/Santiago", "Africa/Cairo",
		"Antarctica/Troll", "Africa/Casablanca", "Europe/Dublin",
	}
	for _, d := range windows {
		calendar := d.calendar(2024)
		for _, name := range places {
			t.Run(name+" "+d.start+" to "+d.end, func(t *testing.T) { checkYear(t, d, calendar, zone(t, name)) })
		}
	}
}

// checkYear checks a window through 2024: each minute of the days on which the clock changes, and about each hour of the others.
func checkYear(t *testing.T, d dailyWindow, calendar map[time.Time]bool, place *time.Location) {
	w, err := NewCronWindow("w", d.start, d.end, place, 3)
	if err != nil {
		t.Fatal(err)
	}

	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, place)
	before := w.IsOpen(begin)
	opens, closes := w.Next(begin)

	latest := time.Time{}
	for now := begin; now.Year() < 2025; now = now.Add(stepAt(now, place)) {
		// The brute-force clock pauses while the wall clock repeats an hour.
		if shown := asUTC(now.In(place)).Truncate(time.Minute); shown.After(latest) {
			latest = shown
		}

		got := w.IsOpen(now)
		if want := calendar[latest]; got != want {
			t.Fatalf("at %s: open is %v, want %v", now, got, want)
		}

		if got && !before && opens.After(now) {
			t.Fatalf("opened by %s, expected to open at %s", now, opens)
		}

		if !got && before && closes.After(now) {
			t.Fatalf("closed by %s, expected to close at %s", now, closes)
		}

		before = got
		if !opens.After(now) || !closes.After(now) {
			opens, closes = w.Next(now)
		}
	}
}

// stepAt returns a minute where the clock of a time zone changes within a day, else about an hour.
func stepAt(now time.Time, place *time.Location) time.Duration {
	_, yesterday := now.Add(-24 * time.Hour).In(place).Zone()
	_, tomorrow := now.Add(24 * time.Hour).In(place).Zone()
	if yesterday != tomorrow {
		return time.Minute
	}

	return 47 * time.Minute
}

func TestCronWindow_SkippedStart(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	w, err := NewCronWindow("night", "30 2 * * *", "0 5 * * *", berlin, 9)
	if err != nil {
		t.Fatal(err)
	}

	// On 31 March 2024 the clock goes from 02:00 to 03:00.
	before := time.Date(2024, 3, 31, 0, 59, 0, 0, time.UTC)
	if w.IsOpen(before) {
		t.Errorf("IsOpen at %s = true, want false before the clock reaches the skipped hour", before.In(berlin))
	}

	opens, closes := w.Next(before)
	if want := time.Date(2024, 3, 31, 1, 0, 0, 0, time.UTC); !opens.Equal(want) || !w.IsOpen(want) {
		t.Errorf("opens at %s, want %s", opens, want)
	}
	if want := time.Date(2024, 3, 31, 3, 0, 0, 0, time.UTC); !closes.Equal(want) || w.IsOpen(want) {
		t.Errorf("closes at %s, want %s", closes, want)
	}
}

func TestFloorAt(t *testing.T) {
	window := func(name, start, end string, replicas int32) CronWindow {
		w, err := NewCronWindow(name, start, end, nil, replicas)
		if err != nil {
			t.Fatal(err)
		}

		return w
	}

	windows := []CronWindow{
		window("day", "0 8 * * *", "0 20 * * *", 4),
		window("lunch", "0 11 * * *", "0 13 * * *", 9),
		window("hourly", "0 * * * *", "0 18 * * *", 2), // opens again each hour and stays open to 18:00
		window("new year", "0 0 1 1 *", "0 0 2 1 *", 50),
	}

	for _, c := range []struct {
		at       string
		replicas int32
		open     string
	}{
		{"2024-03-05T07:59:00Z", 2, "hourly"},
		{"2024-03-05T08:00:00Z", 4, "day hourly"},
		{"2024-03-05T12:59:59Z", 9, "day lunch hourly"},
		{"2024-03-05T13:00:00Z", 4, "day hourly"},
		{"2024-01-01T00:30:00Z", 50, "hourly new year"},
	} {
		now, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}

		got := FloorAt(windows, now)
		if got.Replicas != c.replicas || strings.Join(got.OpenWindows, " ") != c.open {
			t.Errorf("%s: %d by %v, want %d by %s", c.at, got.Replicas, got.OpenWindows, c.replicas, c.open)
		}
	}
}

func TestNewCronWindow_Invalid(t *testing.T) {
	for _, c := range []struct {
		start, end string
		replicas   int32
		want       string
	}{
		{"0 8 * *", "0 9 * * *", 1, `start "0 8 * *"`},
		{"0 8 * * *", "61 9 * * *", 1, `end "61 9 * * *"`},
		{"0 8 * * *", "0 8 * * *", 1, "would never close"},
		{"0 0 31 2 *", "0 9 * * *", 1, "names no date"},
		{"@every 5m", "0 9 * * *", 1, "without @every"},
		{"CRON_TZ=Europe/Berlin 0 8 * * *", "0 9 * * *", 1, "time zone of its own"},
		{"TZ=UTC\t0\t8\t*\t*\t*", "0 9 * * *", 1, "time zone of its own"},
		{"0 8 * * *", "0 9 * * *", -1, "targetReplicas -1"},
	} {
		_, err := NewCronWindow("w", c.start, c.end, time.UTC, c.replicas)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q to %q: error %v, want one with %q", c.start, c.end, err, c.want)
		}
	}
}

func FuzzCronWindow(f *testing.F) {
	f.Add("0 8 * * 1-5", "0 20 * * *", int64(1_700_000_000))
	f.Add("@daily", "*/7 3-5 1,15 * ?", int64(1_700_000_000))
	f.Fuzz(func(t *testing.T, start, end string, at int64) {
		w, err := NewCronWindow("w", start, end, time.UTC, 1)
		if err != nil {
			return
		}

		now := time.Unix(at%4_000_000_000, 0)
		opens, closes := w.Next(now)
		if !opens.IsZero() && !opens.After(now) || !closes.IsZero() && !closes.After(now) {
			t.Fatalf("%q to %q: Next(%s) = %s, %s, want later times", start, end, now, opens, closes)
		}
		if !opens.IsZero() && !w.IsOpen(opens) {
			t.Fatalf("%q to %q: IsOpen(%s) = false, want true when it opens", start, end, opens)
		}
	})
}
