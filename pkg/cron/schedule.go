// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cron evaluates cron schedules as Kubernetes reads them.
package cron

import (
	"math/bits"
	"time"
)

// Schedule is a set of times: those that five cron fields match, or one after each interval. It is comparable; equal schedules have the same
// times.
type Schedule struct {
	minutes, hours, days, months, weekdays valueSet
	interval                               time.Duration
}

// Interval returns the interval of a schedule of the form @every, 0 for others.
func (s Schedule) Interval() time.Duration { return s.interval }

// maxMonths covers the eight years between two 29ths of February at the turn of a century.
const maxMonths = 8*12 + 1

// Next returns the first time of a schedule after t, in UTC; zero for more than eight years. Its cost does not depend on how often the schedule
// fires.
func (s Schedule) Next(t time.Time) time.Time {
	t = t.UTC()
	if s.interval > 0 {
		return t.Truncate(time.Second).Add(s.interval)
	}

	t = t.Truncate(time.Minute).Add(time.Minute)
	year, month, day := t.Date()
	earliest := t.Hour()*minutesPerHour + t.Minute()
	for range maxMonths {
		firstWeekday := int(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday())
		lastDay := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		for ; s.months.has(int(month)) && day <= lastDay; day++ {
			if s.matchesDay(day, firstWeekday) {
				if minute, ok := s.firstMinute(earliest); ok {
					return time.Date(year, month, day, 0, minute, 0, 0, time.UTC)
				}
			}

			earliest = 0
		}

		year, month, day = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Date()
		earliest = 0
	}

	return time.Time{}
}

// Last returns the latest time of a schedule of five fields that is not after t, in UTC; zero for more than eight years, and for an interval, which
// has no times of its own.
func (s Schedule) Last(t time.Time) time.Time {
	t = t.UTC()
	year, month, day := t.Date()
	latest := t.Hour()*minutesPerHour + t.Minute()
	for range maxMonths {
		firstWeekday := int(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday())
		for ; s.months.has(int(month)) && day > 0; day-- {
			if s.matchesDay(day, firstWeekday) {
				if minute, ok := s.lastMinute(latest); ok {
					return time.Date(year, month, day, 0, minute, 0, 0, time.UTC)
				}
			}

			latest = lastMinuteOfDay
		}

		// The last day of the month before.
		year, month, day = time.Date(year, month, 0, 0, 0, 0, 0, time.UTC).Date()
		latest = lastMinuteOfDay
	}

	return time.Time{}
}

// matchesDay reports whether a schedule fires on a day of a month that begins on a weekday. Where it restricts the day of the month and of the
// week, either is enough.
func (s Schedule) matchesDay(day, firstWeekday int) bool {
	const daysPerWeek = 7

	inMonth := s.days.has(day)
	inWeek := s.weekdays.has((firstWeekday + day - 1) % daysPerWeek)
	if s.days&anyValue != 0 || s.weekdays&anyValue != 0 {
		return inMonth && inWeek
	}

	return inMonth || inWeek
}

const (
	minutesPerHour  = 60
	lastMinuteOfDay = 24*minutesPerHour - 1
)

// firstMinute returns the first minute of a day, not before earliest, at which a schedule fires.
func (s Schedule) firstMinute(earliest int) (minute int, ok bool) {
	hour := earliest / minutesPerHour
	minute, ok = s.minutes.firstFrom(earliest % minutesPerHour)
	if ok && s.hours.has(hour) {
		return hour*minutesPerHour + minute, true
	}

	hour, hasHour := s.hours.firstFrom(hour + 1)
	minute, hasMinute := s.minutes.firstFrom(0)
	return hour*minutesPerHour + minute, hasHour && hasMinute
}

// lastMinute returns the last minute of a day, not after latest, at which a schedule fires.
func (s Schedule) lastMinute(latest int) (minute int, ok bool) {
	hour := latest / minutesPerHour
	minute, ok = s.minutes.lastUpTo(latest % minutesPerHour)
	if ok && s.hours.has(hour) {
		return hour*minutesPerHour + minute, true
	}

	hour, hasHour := s.hours.lastUpTo(hour - 1)
	minute, hasMinute := s.minutes.lastUpTo(minutesPerHour - 1)
	return hour*minutesPerHour + minute, hasHour && hasMinute
}

// valueSet is the set of values of a field, a bit for each.
type valueSet uint64

// anyValue is the bit of a field that does not restrict: * and ?.
const anyValue valueSet = 1 << 63

func (v valueSet) has(value int) bool { return v&(1<<uint(value)) != 0 }

// firstFrom returns the lowest value that is not below low.
func (v valueSet) firstFrom(low int) (value int, ok bool) {
	rest := uint64(v&^anyValue) >> uint(low) << uint(low)
	return bits.TrailingZeros64(rest), rest != 0
}

// lastUpTo returns the highest value that is not above high; none for a negative one.
func (v valueSet) lastUpTo(high int) (value int, ok bool) {
	rest := uint64(v) & (1<<uint(high+1) - 1)
	return bits.Len64(rest) - 1, rest != 0
}
