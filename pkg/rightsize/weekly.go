// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

const (
	// peakHour is the share of a day above the request from which a weekday has a peak: one hour.
	peakHour = 1.0 / 24
	// peakFactor is the factor by which its usage must exceed the request, peakTimes that by which its time above the request must exceed
	// that of most days.
	peakFactor = 1.2
	peakTimes  = 2
	// peakDays is the number of such days from which they repeat.
	peakDays = 2
)

// weeklyPeak flags weekdays whose usage exceeds the request on each of them, with the cost of covering them and of not doing so. A
// policy that leaves out some of the days may leave out the same weekday of each week. The day of now is not over, so it does not show that
// there is no peak.
func (s *sizer) weeklyPeak(days []*Day, now time.Time) {
	shares := make([]float64, 0, len(days))
	byWeekday := map[time.Weekday][]*Day{}
	for _, d := range days {
		if d.CPU.Total() > 0 && !now.Before(d.Day.End()) {
			shares = append(shares, shareAbove(d, s.value))
			byWeekday[d.Day.Start().Weekday()] = append(byWeekday[d.Day.Start().Weekday()], d)
		}
	}

	usual := median(shares)
	var names []string
	required := 0.0
	hours := 0.0
	count := 0
	for weekday := time.Sunday; weekday <= time.Saturday; weekday++ {
		same := byWeekday[weekday]
		if len(same) < peakDays || slices.ContainsFunc(same, func(d *Day) bool { return !isPeak(d, s.value, usual) }) {
			continue
		}

		names = append(names, weekday.String())
		for _, d := range same {
			required = max(required, busiestHour(d))
			hours += 24 * shareAbove(d, s.value)
			count++
		}
	}

	if len(names) == 0 {
		return
	}

	// Most days are above the request: a decision of the policy, and no peak.
	if 2*count > len(shares) {
		return
	}

	s.flag(FlagWeeklyPeak, fmt.Sprintf("each %s (UTC, %d days) uses up to %s of CPU, %.1f hours a day above the request; to cover it costs %s more all week, "+
		"not to cover it withholds up to %s of the need in these hours", strings.Join(names, " and "), count, Cores.format(required), hours/float64(count),
		Cores.format(required-s.value), percent(units.Ratio(1-s.value/required))))
}

// isPeak reports whether a day is above a value for an hour, and longer than usual.
func isPeak(d *Day, value, usual float64) bool {
	share := shareAbove(d, value)
	return share >= peakHour && share >= peakTimes*usual && busiestHour(d) >= peakFactor*value
}

// busiestHour returns the CPU of the busiest hour of a day.
func busiestHour(d *Day) float64 { return d.CPU.Quantile(1 - peakHour/2) }

// shareAbove returns the share of the samples of a day above a value.
func shareAbove(d *Day, value float64) float64 {
	return d.CPU.CountAbove(value) / float64(d.CPU.Total())
}
