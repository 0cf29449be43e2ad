// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
)

// CronWindow is a floor of replicas from each time of a start schedule to the next time of an end schedule.
//
// Both are evaluated on the wall clock of a time zone. A time that the clock skips in spring takes effect when the clock has passed
// it, and an hour that it repeats in autumn counts once, the first time. Windows may cross midnight and overlap. Where start and end
// fall on one minute, the window stays open.
type CronWindow struct {
	name       string
	start, end *cron.SpecSchedule
	location   *time.Location
	replicas   int32
}

// NewCronWindow parses two standard cron expressions of five fields (minute, hour, day of the month, month and day of the week) or descriptors
// such as @daily. Its errors name the field.
func NewCronWindow(name, start, end string, location *time.Location, replicas int32) (CronWindow, error) {
	if replicas < 0 {
		return CronWindow{}, fmt.Errorf("targetReplicas %d: must not be negative", replicas)
	}

	w := CronWindow{name: name, location: location, replicas: replicas}
	if location == nil {
		w.location = time.UTC
	}

	var errs []error
	for _, f := range []struct {
		field, text string
		schedule    **cron.SpecSchedule
	}{{"start", start, &w.start}, {"end", end, &w.end}} {
		s, err := cron.ParseStandard(f.text)
		switch spec, ok := s.(*cron.SpecSchedule); {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s %q: %w", f.field, f.text, err))
		case !ok || spec.Location != time.Local && spec.Location != nil:
			errs = append(errs, fmt.Errorf("%s %q: must be a cron expression without @every or a time zone of its own", f.field, f.text))

		default:
			// Wall-clock times are represented in UTC, where no hour is skipped or repeated.
			spec.Location = time.UTC
			*f.schedule = spec
			if spec.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
				errs = append(errs, fmt.Errorf("%s %q: names no date that there is", f.field, f.text))
			}
		}
	}

	if len(errs) == 0 && *w.start == *w.end {
		errs = append(errs, fmt.Errorf("start and end are both %q: the window would never close", start))
	}

	return w, errors.Join(errs...)
}

// IsOpen reports whether the window is open at a time.
func (w CronWindow) IsOpen(now time.Time) bool {
	wall := wallClock(now, w.location)
	started, ok := lastScheduled(w.start, wall)
	if !ok {
		return false
	}

	ended, ok := lastScheduled(w.end, wall)
	return !ok || !ended.After(started)
}

// Next returns the next times after now at which the window opens and closes; zero for more than five years.
func (w CronWindow) Next(now time.Time) (opens, closes time.Time) {
	wall := wallClock(now, w.location)
	return firstInstant(w.start.Next(wall), now, w.location), firstInstant(w.end.Next(wall), now, w.location)
}

// Floor is the combination of the open windows.
type Floor struct {
	// Replicas is the highest floor of the open windows, 0 without any.
	Replicas int32
	// OpenWindows are the names of the open windows, in the order of the list.
	OpenWindows []string
}

// FloorAt returns the floor at a time.
func FloorAt(windows []CronWindow, now time.Time) Floor {
	var f Floor
	for _, w := range windows {
		if w.IsOpen(now) {
			f.Replicas = max(f.Replicas, w.replicas)
			f.OpenWindows = append(f.OpenWindows, w.name)
		}
	}

	return f
}

// wallClock returns the wall-clock time of a time zone, represented in UTC. It never goes back: while the clock repeats an hour, it
// stays at the end of it.
func wallClock(t time.Time, location *time.Location) time.Time {
	t = t.In(location)
	wall := asUTC(t)

	since, _ := t.ZoneBounds()
	if since.IsZero() {
		return wall
	}

	_, before := since.Add(-time.Nanosecond).Zone()
	if reached := since.UTC().Add(time.Duration(before) * time.Second); wall.Before(reached) {
		return reached.Add(-time.Nanosecond)
	}

	return wall
}

// asUTC returns the same date and time of day in UTC.
func asUTC(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// maxMonthsBack covers the eight years between two 29ths of February at the turn of a century.
const maxMonthsBack = 8*12 + 1

// lastScheduled returns the latest time of a schedule that is not after wall. It goes back by months and days, so that its cost does not depend
// on how often the schedule fires.
func lastScheduled(s *cron.SpecSchedule, wall time.Time) (time.Time, bool) {
	year, month, day := wall.Date()
	latest := wall.Hour()*60 + wall.Minute()
	for range maxMonthsBack {
		if s.Month&(1<<uint(month)) != 0 {
			firstWeekday := int(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday())
			for ; day > 0; day-- {
				if !matchesDay(s, day, (firstWeekday+day-1)%7) {
					latest = math.MaxInt
					continue
				}

				if minute, ok := lastMinute(s, latest); ok {
					return time.Date(year, month, day, 0, minute, 0, 0, time.UTC), true
				}

				latest = math.MaxInt
			}
		}

		// The last day of the month before.
		year, month, day = time.Date(year, month, 0, 0, 0, 0, 0, time.UTC).Date()
		latest = math.MaxInt
	}

	return time.Time{}, false
}

// anyValue is the bit of a field of a cron expression that allows all values.
const anyValue = 1 << 63

// matchesDay reports whether a schedule fires on a day. Where it restricts the day of the month and of the week, either is enough.
func matchesDay(s *cron.SpecSchedule, day, weekday int) bool {
	inMonth := s.Dom&(1<<uint(day)) != 0
	inWeek := s.Dow&(1<<uint(weekday)) != 0
	if s.Dom&anyValue != 0 || s.Dow&anyValue != 0 {
		return inMonth && inWeek
	}

	return inMonth || inWeek
}

// lastMinute returns the last minute of a day, not after latest, at which a schedule fires.
func lastMinute(s *cron.SpecSchedule, latest int) (minute int, ok bool) {
	const lastHour, minutesPerHour = 23, 60

	hour := lastHour
	if latest < (lastHour+1)*minutesPerHour {
		hour = latest / minutesPerHour
		if s.Hour&(1<<uint(hour)) != 0 {
			if m := highestUpTo(s.Minute, latest%minutesPerHour); m >= 0 {
				return hour*minutesPerHour + m, true
			}
		}

		hour--
	}

	h := highestUpTo(s.Hour, hour)
	if h < 0 {
		return 0, false
	}

	return h*minutesPerHour + highestUpTo(s.Minute, minutesPerHour-1), true
}

// highestUpTo returns the highest bit that is set among those from 0 to last, -1 for none.
func highestUpTo(set uint64, last int) int {
	if last < 0 {
		return -1
	}

	return bits.Len64(set&(1<<uint(last+1)-1)) - 1
}

// firstInstant returns the first time after now at which the wall clock of a time zone has reached a time.
func firstInstant(wall, now time.Time, location *time.Location) time.Time {
	if wall.IsZero() {
		return time.Time{}
	}

	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, location)
	if guess.After(now) && wallClock(guess, location).Equal(wall) {
		return guess
	}

	// The clock skips or repeats this hour. No time zone shifts by more than three hours.
	const reach = 3 * 60

	minutes := make([]time.Time, 0, 2*reach)
	for m := guess.Add(-reach * time.Minute); m.Before(guess.Add(reach * time.Minute)); m = m.Add(time.Minute) {
		minutes = append(minutes, m)
	}

	i := slices.IndexFunc(minutes, func(m time.Time) bool { return m.After(now) && !wallClock(m, location).Before(wall) })
	if i < 0 {
		return guess
	}

	return minutes[i]
}
