// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/forecast"
)

// Calendar is a set of holidays. Holidays are excluded from the history of other days and are forecast from each
// other and from Sundays. The zero value is empty: holidays are then detected from the samples.
type Calendar struct {
	days map[int64]struct{} // days since 1970, by the clock of the zone
	zone *time.Location
}

// maxHolidays bounds a calendar.
const maxHolidays = 10_000

// NewCalendar reads dates (2026-12-25); days begin at midnight in the zone, nil for UTC. Errors name what is no date.
func NewCalendar(dates []string, zone *time.Location) (Calendar, error) {
	if zone == nil {
		zone = time.UTC
	}

	if len(dates) > maxHolidays {
		return Calendar{}, fmt.Errorf("%d holidays: want at most %d", len(dates), maxHolidays)
	}

	c := Calendar{days: map[int64]struct{}{}, zone: zone}
	var errs []error
	for _, text := range dates {
		date, err := time.ParseInLocation(time.DateOnly, strings.TrimSpace(text), time.UTC)
		if err != nil {
			errs = append(errs, fmt.Errorf("holiday %q: want a date like 2026-12-25", text))
			continue
		}

		c.days[floorDiv(date.Unix(), int64(day/time.Second))] = struct{}{}
	}

	return c, errors.Join(errs...)
}

// Holiday reports whether a time is on one of the days.
func (c Calendar) Holiday(at time.Time) bool {
	if len(c.days) == 0 {
		return false
	}

	_, offset := at.In(c.zone).Zone()
	_, ok := c.days[floorDiv(at.Unix()+int64(offset), int64(day/time.Second))]
	return ok
}

// without returns the model as it would be without the samples on holidays; the model itself where that leaves nothing.
func (m *Model) without(c Calendar) *Model {
	if len(c.days) == 0 {
		return m
	}

	view := *m
	view.recent.cells = slices.Clone(m.recent.cells)
	for i := m.recent.end - int64(m.recent.count); i < m.recent.end; i++ {
		if c.Holiday(time.Unix(i*m.layout.seconds(), 0)) {
			view.recent.cells[floorMod(i, int64(len(view.recent.cells)))] = emptyCell()
		}
	}

	if !view.filled() {
		return m
	}

	return &view
}

// fillHolidays replaces the forecast of holidays.
func (m *Model) fillHolidays(out forecast.Forecast, c Calendar) {
	if len(c.days) == 0 {
		return
	}

	last := int64(-1)
	ok := false
	var q forecast.Quantiles
	for i := range out.Values {
		at := out.Start.Add(time.Duration(i) * out.Step)
		if !c.Holiday(at) {
			continue
		}

		if index := floorDiv(at.Unix(), m.layout.seconds()); index != last {
			last = index
			q, ok = m.holiday(c, at)
		}

		if ok {
			out.Values[i] = q
		}
	}
}

// holidayReach is how far around the time of day the samples of earlier holidays are used.
const holidayReach = 15 * time.Minute

// holiday forecasts the slot at a time that is on a holiday: from the time of day of earlier holidays, and of Sundays,
// newest first; false where there are none.
func (m *Model) holiday(c Calendar, at time.Time) (forecast.Quantiles, bool) {
	const maxDays = 4
	var all sortedAtoms

	days := 0
	slots := float32(0)
	reach := int64(holidayReach / m.layout.slot)
	for ago := 1; ago <= historyDays && days < maxDays; ago++ {
		past := at.Add(-time.Duration(ago) * day)

		// Sundays are like holidays, and more frequent.
		if !c.Holiday(past) && past.In(c.zone).Weekday() != time.Sunday {
			continue
		}

		index := floorDiv(past.Unix(), m.layout.seconds())
		sampled := false
		for shift := -reach; shift <= reach; shift++ {
			a := m.recent.at(index + shift).unpack()
			if a.empty() {
				continue
			}

			sampled = true
			slots++

			for k, v := range a {
				all = append(all, pack(v, 0, k))
			}
		}

		if sampled {
			days++
		}
	}

	// All of these days have the same weight.
	var q forecast.Quantiles
	var upper [allLevels - 1]float32
	all = all.sort(nil)
	shares := m.layout.shares

	middle, ok := all.median([]float32{1, 0, 0}, slots)
	if !ok || !all.upper(shares[:], slots, aboveAll(), upper[:]) {
		return q, false
	}

	q[0] = min(middle*m.scale, forecast.MaxValue)
	for i, v := range upper {
		q[i+1] = min(float64(v)*m.scale, forecast.MaxValue)
	}

	return q.Ordered(), true
}
