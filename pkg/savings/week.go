// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package savings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const hoursPerWeek = 7 * 24

// Schedule is the time of the weekly report. The zero value with a zone is Sunday at 0:00.
type Schedule struct {
	Day  time.Weekday
	Hour int
	Zone *time.Location
}

// Due returns the last time of the report that is no later than a time.
func (s Schedule) Due(at time.Time) time.Time {
	local := at.In(s.Zone)
	daysSince := (int(local.Weekday()) - int(s.Day) + 7) % 7
	due := time.Date(local.Year(), local.Month(), local.Day()-daysSince, s.Hour, 0, 0, 0, s.Zone)
	if due.After(at) {
		due = time.Date(local.Year(), local.Month(), local.Day()-daysSince-7, s.Hour, 0, 0, 0, s.Zone)
	}

	return due
}

// WeekEnd returns the end of the last complete day in UTC at the time of a report: days of the record are days in UTC.
func WeekEnd(due time.Time) time.Time { return due.UTC().Truncate(24 * time.Hour) }

// Week returns the sum of the seven days before an end, by currency.
func (r *Record) Week(end time.Time) map[string]Day {
	out := map[string]Day{}
	for i := 1; i <= 7; i++ {
		date := end.AddDate(0, 0, -i)
		for _, account := range r.Months[date.Format(MonthLayout)] {
			day, ok := account.Days[date.Day()]
			if !ok {
				continue
			}

			sum := out[account.Currency]
			sum.Amounts = sum.Plus(day.Amounts)
			sum.Hours += day.Hours
			sum.Unknown = max(sum.Unknown, day.Unknown)
			out[account.Currency] = sum
		}
	}

	return out
}

// WeeklyText formats the week before an end, with what is not known.
func (r *Record) WeeklyText(end time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Savings from %s to %s (UTC).\n", end.AddDate(0, 0, -7).Format(time.DateOnly), end.AddDate(0, 0, -1).Format(time.DateOnly))

	week := r.Week(end)
	if len(week) == 0 {
		return b.String() + "Not known: nothing was recorded.\n"
	}

	hours := 0.0
	unknown := 0
	for _, currency := range slices.Sorted(maps.Keys(week)) {
		sum := week[currency]
		fmt.Fprintf(&b, "%.2f %s saved of %.2f promised by adopted recommendations; %.2f recommended and not adopted; the nodes cost %.2f.\n",
			sum.Realized, currency, sum.Promised, sum.Available, sum.Cost)
		hours += sum.Hours
		unknown = max(unknown, sum.Unknown)
	}

	// The text names what it leaves out, beyond what rounding explains.
	if missing := hoursPerWeek - hours; missing > hoursPerWeek/100. {
		fmt.Fprintf(&b, "Not known: %.1f of %d hours, in which craned did not record.\n", missing, hoursPerWeek)
	}
	if unknown > 0 {
		fmt.Fprintf(&b, "Not known: the savings of up to %d adopted workloads at a time.\n", unknown)
	}

	return b.String()
}
