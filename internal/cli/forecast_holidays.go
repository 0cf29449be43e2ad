// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/forecast/registry"
)

// mostHolidayBytes bounds a file of dates.
const mostHolidayBytes = 1 << 20

// holidayFlags name the days that go their own way.
type holidayFlags struct{ holidays, zone string }

func (f *holidayFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.holidays, "holidays", "", "dates such as 2026-12-25,2026-12-26, or a file with one on each line, that are unlike their weekday; for the algorithm auto")
	flags.StringVar(&f.zone, "time-zone", "UTC", "zone in which a holiday begins at midnight, for instance Europe/Berlin")
}

// options returns the settings of an algorithm with the holidays in them.
func (f *holidayFlags) options(algorithm string) (registry.Options, error) {
	if f.holidays == "" {
		return registry.Options{}, nil
	}
	if algorithm != "" && algorithm != registry.Auto {
		return registry.Options{}, fmt.Errorf("--holidays are for the algorithm %s, not %s", registry.Auto, algorithm)
	}
	zone, err := time.LoadLocation(f.zone)
	if err != nil {
		return registry.Options{}, fmt.Errorf("--time-zone %q: %w", f.zone, err)
	}
	dates, err := holidayDates(f.holidays)
	if err != nil {
		return registry.Options{}, fmt.Errorf("--holidays: %w", err)
	}
	calendar, err := auto.NewCalendar(dates, zone)
	if err != nil {
		return registry.Options{}, fmt.Errorf("--holidays: %w", err)
	}
	return registry.Options{Holidays: calendar}, nil
}

// holidayDates reads a file, or else a list. In a file what follows # is a comment.
func holidayDates(text string) ([]string, error) {
	info, err := os.Stat(text)
	if errors.Is(err, fs.ErrNotExist) {
		return strings.Split(text, ","), nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostHolidayBytes {
		return nil, fmt.Errorf("%s: want a file of at most %d bytes", text, mostHolidayBytes)
	}
	content, err := os.ReadFile(text)
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
		return nil, fmt.Errorf("%s: no dates in it", text)
	}
	return dates, nil
}
