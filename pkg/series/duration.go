// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
)

// maxDays is the number of whole days that time.Duration can hold (about 292 years).
const maxDays = 106_751

// ParseDuration reads a duration as people and gocrane write it: whatever time.ParseDuration accepts ("90m", "1h30m"),
// whole days ("7d"), or days followed by a Go duration ("1d12h"). A day has 24 hours. An empty, negative or unknown
// text is an error that quotes it.
func ParseDuration(text string) (time.Duration, error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return 0, errors.New("empty duration: want for example 7d, 36h or 90s")
	}

	// time.ParseDuration has no unit of a day.
	days, rest, hasDays := strings.Cut(trimmed, "d")
	if !hasDays {
		rest = trimmed
	}

	var total time.Duration
	if hasDays {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > maxDays {
			return 0, fmt.Errorf("invalid duration %q: want a whole number of days up to %d before \"d\"", text, maxDays)
		}

		total = time.Duration(n) * 24 * time.Hour
	}

	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return 0, fmt.Errorf("invalid duration %q: want for example 7d, 36h or 90s", text)
		}

		if d < 0 || strings.HasPrefix(rest, "+") && hasDays || total+d < total {
			return 0, fmt.Errorf("invalid duration %q: must not be negative or signed", text)
		}

		total += d
	}

	return total, nil
}

// FormatDuration writes d so that ParseDuration reads it back, with whole days as "<n>d": 168h is "7d", 90m is
// "1h30m0s".
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day {
		return d.String()
	}

	days := d / day
	rest := d % day
	if rest == 0 {
		return strconv.FormatInt(int64(days), 10) + "d"
	}

	return strconv.FormatInt(int64(days), 10) + "d" + rest.String()
}

// Day is a calendar day in UTC, counted from 1970-01-01. It is the unit of Crane's caches and replays: a day in UTC has
// always 24 hours, whatever the time zone of the reader.
type Day int32

const secondsPerDay = 24 * 60 * 60

// DayOf returns the day in UTC that holds t.
func DayOf(t time.Time) Day {
	s := t.Unix()
	d := s / secondsPerDay
	if s%secondsPerDay < 0 {
		d--
	}

	return Day(d)
}

// Start is the first instant of the day, midnight UTC.
func (d Day) Start() time.Time { return time.Unix(int64(d)*secondsPerDay, 0).UTC() }

// End is the first instant after the day.
func (d Day) End() time.Time { return (d + 1).Start() }

// Weekday returns the day of the week in UTC.
func (d Day) Weekday() time.Weekday { return d.Start().Weekday() }

// String is the date, 2006-01-02.
func (d Day) String() string { return d.Start().Format(time.DateOnly) }

// Days splits s at midnight UTC and yields one view of s per day, in order. The views share the values of s. A sample
// belongs to the day that holds its own time.
func (s Series) Days() iter.Seq2[Day, Series] {
	return func(yield func(Day, Series) bool) {
		for i := 0; i < len(s.Values); {
			day := DayOf(s.Time(i))
			j := len(s.Values)
			if s.Step > 0 {
				remaining := day.End().Sub(s.Time(i))
				j = min(j, i+int((remaining+s.Step-1)/s.Step))
			}

			if !yield(day, s.Slice(i, j)) {
				return
			}

			i = j
		}
	}
}

// Slice returns the view of the values i <= k < j.
func (s Series) Slice(i, j int) Series {
	return Series{Start: s.Time(i), Step: s.Step, Values: s.Values[i:j]}
}

// Between returns the view of the samples whose time t satisfies start <= t < end.
func (s Series) Between(start, end time.Time) Series {
	return s.Slice(s.indexAtOrAfter(start), max(s.indexAtOrAfter(start), s.indexAtOrAfter(end)))
}

// indexAtOrAfter returns the index of the first sample at or after t, len(s.Values) if there is none.
func (s Series) indexAtOrAfter(t time.Time) int {
	if len(s.Values) == 0 || !t.After(s.Start) {
		return 0
	}

	if s.Step <= 0 || !t.Before(s.End()) {
		return len(s.Values)
	}

	return int((t.Sub(s.Start) + s.Step - 1) / s.Step)
}

// FormatCount returns n and a noun, in the plural unless n is 1.
func FormatCount[N int | int32 | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return strconv.FormatInt(int64(n), 10) + " " + noun + "s"
}
