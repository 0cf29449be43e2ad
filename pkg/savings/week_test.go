// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savings_test

import (
	"testing"
	"time"

	"crane.io/crane/pkg/savings"
)

// TestSchedule: a report is due once in a week at an hour of a zone, also in weeks with a change of the clock.
func TestSchedule(t *testing.T) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}

	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}

	monday := savings.Schedule{Day: time.Monday, Zone: time.UTC}
	east := savings.Schedule{Day: time.Monday, Hour: 9, Zone: shanghai}
	summer := savings.Schedule{Day: time.Sunday, Hour: 8, Zone: berlin}
	for _, c := range []struct {
		schedule       savings.Schedule
		now, due, week string
	}{
		{monday, "2026-11-02T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-02T00:00:00Z"},
		{monday, "2026-11-08T23:59:59Z", "2026-11-02T00:00:00Z", "2026-11-02T00:00:00Z"},
		{monday, "2026-11-10T12:00:00Z", "2026-11-09T00:00:00Z", "2026-11-09T00:00:00Z"},
		{east, "2026-11-09T00:59:59Z", "2026-11-02T01:00:00Z", "2026-11-02T00:00:00Z"},
		{east, "2026-11-09T01:00:00Z", "2026-11-09T01:00:00Z", "2026-11-09T00:00:00Z"},
		{summer, "2026-10-25T06:59:59Z", "2026-10-18T06:00:00Z", "2026-10-18T00:00:00Z"},
		{summer, "2026-10-25T07:00:00Z", "2026-10-25T07:00:00Z", "2026-10-25T00:00:00Z"},
	} {
		due := c.schedule.Due(at(c.now))
		if !due.Equal(at(c.due)) || !savings.WeekEnd(due).Equal(at(c.week)) {
			t.Errorf("%s: due %s, week to %s; want %s and %s", c.now, due, savings.WeekEnd(due), c.due, c.week)
		}
	}
}

// TestWeeklyText: a week may lie in two months, and what was not observed is named.
func TestWeeklyText(t *testing.T) {
	r := &savings.Record{}
	if got, want := r.WeeklyText(at("2026-11-02T00:00:00Z")), "Savings from 2026-10-26 to 2026-11-01 (UTC).\nNot known: nothing was recorded.\n"; got != want {
		t.Errorf("WeeklyText() of an empty record = %q, want %q", got, want)
	}

	s := sample()
	s.Unknown = 0
	add(t, r, "2026-10-25T00:00:00Z", "2026-11-03T00:00:00Z", s)
	want := "Savings from 2026-10-26 to 2026-11-01 (UTC).\n" +
		"168.00 USD saved of 336.00 promised by adopted recommendations; 672.00 recommended and not adopted; the nodes cost 1680.00.\n"

	if got := r.WeeklyText(at("2026-11-02T00:00:00Z")); got != want {
		t.Errorf("WeeklyText() = %q, want %q", got, want)
	}

	r = &savings.Record{}
	add(t, r, "2026-11-01T12:00:00Z", "2026-11-02T06:00:00Z", sample())
	want = "Savings from 2026-10-26 to 2026-11-01 (UTC).\n" +
		"12.00 USD saved of 24.00 promised by adopted recommendations; 48.00 recommended and not adopted; the nodes cost 120.00.\n" +
		"Not known: 156.0 of 168 hours, in which craned did not record.\nNot known: the savings of up to 1 adopted workloads at a time.\n"

	if got := r.WeeklyText(at("2026-11-02T00:00:00Z")); got != want {
		t.Errorf("WeeklyText() of a part of a week = %q, want %q", got, want)
	}
}
