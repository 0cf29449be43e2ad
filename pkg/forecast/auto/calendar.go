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

// mostHolidays bounds a calendar.
const mostHolidays = 10_000

// NewCalendar reads dates (2026-12-25); days begin at midnight in the zone, nil for UTC. Errors name what is no date.
func NewCalendar(dates []string, zone *time.Location) (Calendar, error) {
	if zone == nil {
		zone = time.UTC
	}
	if len(dates) > mostHolidays {
		return Calendar{}, fmt.Errorf("%d holidays: want at most %d", len(dates), mostHolidays)
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

// without returns the model as it would be had there been no samples on holidays; the model itself where that leaves
// nothing.
func (m *Model) without(c Calendar) *Model {
	if len(c.days) == 0 {
		return m
	}
	view := *m
	unit := m.layout.seconds()
	view.recent = m.recent.masked(func(i int64) bool { return c.Holiday(time.Unix(i*unit, 0)) })
	block := unit * int64(m.layout.perBlock())
	view.older = m.older.masked(func(i int64) bool { return c.Holiday(time.Unix(i*block, 0)) })
	if !view.filled() {
		return m
	}
	return &view
}

// masked returns a ring without some of the cells.
func (r ring) masked(gone func(index int64) bool) ring {
	r.cells = slices.Clone(r.cells)
	for i := r.end - int64(r.count); i < r.end; i++ {
		if gone(i) {
			r.cells[floorMod(i, int64(len(r.cells)))] = emptyCell()
		}
	}
	return r
}

// holiday forecasts the step at a time that is on a holiday, at the scale of the model: from the same time of day of
// earlier holidays, and of Sundays, newest first; false where there are none.
func (m *Model) holiday(c Calendar, at time.Time, above []float32) (forecast.Quantiles, bool) {
	const most = 4
	var middles, atoms few
	days := 0
	shares := sharesFor(m.layout, m.step)
	for ago := 1; ago < historyDays+olderDays && days < most; ago++ {
		then := at.Add(-time.Duration(ago) * day)
		if !c.Holiday(then) && then.In(c.zone).Weekday() != time.Sunday {
			continue
		}
		u := m.unitAt(then.Unix())
		if u.empty() {
			continue
		}
		days++
		middles = middles.add(u.middle(m.layout.sub), 1)
		// The units around stand for what may come a little earlier or later.
		for _, shift := range []int64{-1, 0, 1} {
			near := m.unitAt(then.Unix() + shift*m.layout.seconds())
			for i := range m.layout.sub {
				atoms = atoms.add(near.mid[i], shares[0]/float32(m.layout.sub))
			}
			atoms = atoms.add(near.high, shares[1]).add(near.top, shares[2])
		}
	}
	var q forecast.Quantiles
	var upper [tails]float32
	if days == 0 || !atoms.upper(above, upper[:]) {
		return q, false
	}
	q[0] = float64(middles.median(0))
	for i, v := range upper {
		q[i+1] = float64(v)
	}
	return q.Ordered(), true
}

// unitAt returns the unit that holds a time, from the older history where the recent one does not reach; an empty one
// where neither does.
func (m *Model) unitAt(seconds int64) unit {
	index := floorDiv(seconds, m.layout.seconds())
	if c := m.recent.at(index); !c.empty() {
		return c.unpack()
	}
	return m.oldUnit(index)
}
