// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savings_test

import (
	"testing"

	"crane.io/crane/pkg/savings"
)

// TestWeeklyText: the week ends on Monday at 0:00, may lie in two months, and what was not observed is named.
func TestWeeklyText(t *testing.T) {
	for now, want := range map[string]string{
		"2026-11-02T00:00:00Z": "2026-11-02T00:00:00Z", "2026-11-08T23:59:59Z": "2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z": "2026-11-09T00:00:00Z",
		"2026-11-10T12:00:00Z": "2026-11-09T00:00:00Z",
	} {
		if got := savings.WeekEnd(at(now)); !got.Equal(at(want)) {
			t.Errorf("week before %s ends at %s, want %s", now, got, want)
		}
	}
	r := &savings.Record{}
	if got, want := r.WeeklyText(at("2026-11-02T00:00:00Z")), "Savings from 2026-10-26 to 2026-11-01 (UTC).\nNot known: nothing was recorded.\n"; got != want {
		t.Errorf("%q", got)
	}
	s := sample()
	s.Unknown = 0
	add(t, r, "2026-10-25T00:00:00Z", "2026-11-03T00:00:00Z", s)
	want := "Savings from 2026-10-26 to 2026-11-01 (UTC).\n" +
		"168.00 USD saved of 336.00 promised by adopted recommendations; 672.00 recommended and not adopted; the nodes cost 1680.00.\n"
	if got := r.WeeklyText(at("2026-11-02T00:00:00Z")); got != want {
		t.Errorf("%q", got)
	}
	r = &savings.Record{}
	add(t, r, "2026-11-01T12:00:00Z", "2026-11-02T06:00:00Z", sample())
	want = "Savings from 2026-10-26 to 2026-11-01 (UTC).\n" +
		"12.00 USD saved of 24.00 promised by adopted recommendations; 48.00 recommended and not adopted; the nodes cost 120.00.\n" +
		"Not known: 156.0 of 168 hours, in which craned did not record.\nNot known: the savings of up to 1 adopted workloads at a time.\n"
	if got := r.WeeklyText(at("2026-11-02T00:00:00Z")); got != want {
		t.Errorf("%q", got)
	}
}
