// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package units

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxDays is the number of whole days that time.Duration can hold (about 292 years).
const maxDays = 106_751

// ParseDuration reads a duration as people and gocrane write it: whatever time.ParseDuration accepts ("90m", "1h30m"),
// whole days ("7d"), or days followed by a Go duration ("1d12h"). A day has 24 hours. An empty, negative or unknown
// text is an error that quotes it.
func ParseDuration(text string) (time.Duration, error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return 0, errors.New("empty duration: want for example 7d, 36h or 90s")
	}

	// time.ParseDuration has no unit of a day.
	days, rest, hasDays := strings.Cut(trimmed, "d")
	if !hasDays {
		rest = trimmed
	}

	var total time.Duration
	if hasDays {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > maxDays {
			return 0, fmt.Errorf("invalid duration %q: want a whole number of days up to %d before \"d\"", text, maxDays)
		}

		total = time.Duration(n) * 24 * time.Hour
	}

	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return 0, fmt.Errorf("invalid duration %q: want for example 7d, 36h or 90s", text)
		}

		if d < 0 || strings.HasPrefix(rest, "+") && hasDays || total+d < total {
			return 0, fmt.Errorf("invalid duration %q: must not be negative or signed", text)
		}

		total += d
	}

	return total, nil
}

// FormatDuration writes d so that ParseDuration reads it back, with whole days as "<n>d": 168h is "7d", 90m is
// "1h30m0s".
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day {
		return d.String()
	}

	days := d / day
	rest := d % day
	if rest == 0 {
		return strconv.FormatInt(int64(days), 10) + "d"
	}

	return strconv.FormatInt(int64(days), 10) + "d" + rest.String()
}

// FormatCount returns n and a noun, in the plural unless n is 1.
func FormatCount[N int | int32 | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return strconv.FormatInt(int64(n), 10) + " " + noun + "s"
}

// FormatShortDuration formats 1m0s as 1m.
func FormatShortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}

// FormatHours formats a number of hours: "7d" or "36h".
func FormatHours(hours int) string {
	if hours%24 == 0 && hours > 24 {
		return fmt.Sprintf("%dd", hours/24)
	}

	return fmt.Sprintf("%dh", hours)
}
