// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"iter"
	"time"
)

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
