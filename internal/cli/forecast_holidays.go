// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/forecast/registry"
)

// holidayFlags are the dates that do not follow the pattern of their weekday.
type holidayFlags struct{ holidays, zone string }

func (f *holidayFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.holidays, "holidays", "", "dates that do not follow the pattern of their weekday, such as 2026-12-25,2026-12-26, or a file with one date per line; for the algorithm auto")
	flags.StringVar(&f.zone, "time-zone", "UTC", "time zone whose midnight ends a day, for example Europe/Berlin; for the algorithm auto")
}

// options returns the options of an algorithm with the holidays.
func (f *holidayFlags) options(algorithm string) (registry.Options, error) {
	if f.holidays != "" && algorithm != "" && algorithm != registry.Auto {
		return registry.Options{}, fmt.Errorf("--holidays requires the algorithm %s, not %s", registry.Auto, algorithm)
	}

	zone, err := time.LoadLocation(f.zone)
	if err != nil {
		return registry.Options{}, fmt.Errorf("--time-zone %q: %w", f.zone, err)
	}

	var dates []string
	if f.holidays != "" {
		if dates, err = parseHolidayDates(f.holidays); err != nil {
			return registry.Options{}, fmt.Errorf("--holidays: %w", err)
		}
	}

	calendar, err := auto.NewCalendar(dates, zone)
	if err != nil {
		return registry.Options{}, fmt.Errorf("--holidays: %w", err)
	}

	return registry.Options{Holidays: calendar}, nil
}

// parseHolidayDates reads a file if one exists, else a comma-separated list. In a file, # starts a comment.
func parseHolidayDates(text string) ([]string, error) {
	content, err := readInputFile(text)
	if errors.Is(err, fs.ErrNotExist) {
		return strings.Split(text, ","), nil
	}
	if err != nil {
		return nil, err
	}

	var dates []string
	for line := range strings.Lines(string(content)) {
		date, _, _ := strings.Cut(line, "#")
		if date = strings.TrimSpace(date); date != "" {
			dates = append(dates, date)
		}
	}

	if len(dates) == 0 {
		return nil, fmt.Errorf("%s: contains no dates", text)
	}

	return dates, nil
}
