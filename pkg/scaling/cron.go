// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/cron"
)

// CronWindow is a floor of replicas from each time of a start schedule to the next time of an end schedule.
//
// Both are evaluated on the wall clock of a time zone. A time that the clock skips in spring takes effect when the clock has passed
// it, and an hour that it repeats in autumn counts once, the first time. Windows may cross midnight and overlap. Where start and end
// fall on one minute, the window stays open.
type CronWindow struct {
	name       string
	start, end cron.Schedule
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
		schedule    *cron.Schedule
	}{{"start", start, &w.start}, {"end", end, &w.end}} {
		schedule, err := cron.Parse(f.text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s %q: %w", f.field, f.text, err))
		case schedule.Interval() > 0:
			errs = append(errs, fmt.Errorf("%s %q: must be a cron expression without @every", f.field, f.text))
		case schedule.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero():
			errs = append(errs, fmt.Errorf("%s %q: names no date that there is", f.field, f.text))
		}

		*f.schedule = schedule
	}

	if len(errs) == 0 && w.start == w.end {
		errs = append(errs, fmt.Errorf("start and end are both %q: the window would never close", start))
	}

	return w, errors.Join(errs...)
}

// IsOpen reports whether the window is open at a time.
func (w CronWindow) IsOpen(now time.Time) bool {
	wall := wallClock(now, w.location)
	started := w.start.Last(wall)
	if started.IsZero() {
		return false
	}

	return !w.end.Last(wall).After(started)
}

// Next returns the next times after now at which the window opens and closes; zero for more than eight years.
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
