// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse parses five fields (minute, hour, day of the month, month and day of the week) of values, names, ranges, steps and lists, or a descriptor:
// @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, or @every with a duration, which is cut to seconds and is at least one. A time
// zone before the schedule (TZ= or CRON_TZ=) is an error. Errors name the field.
func Parse(text string) (Schedule, error) {
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return Schedule{}, errors.New("must not have a time zone of its own (TZ= or CRON_TZ=)")
	}
	if strings.HasPrefix(text, "@") {
		return parseDescriptor(text)
	}

	fields := strings.Fields(text)
	ranges := fieldRanges()
	if len(fields) != len(ranges) {
		return Schedule{}, fmt.Errorf("%d fields, want %d (minute, hour, date, month, weekday)", len(fields), len(ranges))
	}

	var sets [5]valueSet
	for i, r := range ranges {
		set, err := r.parse(fields[i])
		if err != nil {
			return Schedule{}, fmt.Errorf("%s %q: %w", r.name, fields[i], err)
		}

		sets[i] = set
	}

	return Schedule{
		minutes:  sets[0],
		hours:    sets[1],
		days:     sets[2],
		months:   sets[3],
		weekdays: sets[4],
	}, nil
}

// parseDescriptor parses a schedule that begins with @.
func parseDescriptor(text string) (Schedule, error) {
	switch text {
	case "@yearly", "@annually":
		return Parse("0 0 1 1 *")
	case "@monthly":
		return Parse("0 0 1 * *")
	case "@weekly":
		return Parse("0 0 * * 0")
	case "@daily", "@midnight":
		return Parse("0 0 * * *")
	case "@hourly":
		return Parse("0 * * * *")
	}

	duration, ok := strings.CutPrefix(text, "@every ")
	if !ok {
		return Schedule{}, errors.New("unknown descriptor")
	}

	interval, err := time.ParseDuration(duration)
	if err != nil {
		return Schedule{}, fmt.Errorf("@every: %w", err)
	}

	return Schedule{interval: max(interval.Truncate(time.Second), time.Second)}, nil
}

// fieldRange is the range of a field's values, with the names of the first ones.
type fieldRange struct {
	name      string
	low, high int
	names     []string
}

func fieldRanges() []fieldRange {
	return []fieldRange{
		{name: "minute", low: 0, high: 59},
		{name: "hour", low: 0, high: 23},
		{name: "day of the month", low: 1, high: 31},
		{name: "month", low: 1, high: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
		{name: "day of the week", low: 0, high: 6, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
	}
}

// parse parses a list of values and ranges. Empty elements have no value, so that a comma alone matches nothing, as in Kubernetes.
func (r fieldRange) parse(text string) (valueSet, error) {
	var set valueSet
	for element := range strings.SplitSeq(text, ",") {
		if element == "" {
			continue
		}

		values, err := r.parseElement(element)
		if err != nil {
			return 0, err
		}

		set |= values
	}

	return set, nil
}

// parseElement parses *, ?, a value or a range, each with an optional step. A value with a step stands for the range from it to the highest one.
// What follows a hyphen after * or ? is ignored, as in Kubernetes.
func (r fieldRange) parseElement(text string) (valueSet, error) {
	span, stepText, hasStep := strings.Cut(text, "/")
	lowText, highText, isRange := strings.Cut(span, "-")

	low, high := r.low, r.high
	isAny := lowText == "*" || lowText == "?"
	if !isAny {
		var err error
		low, high, err = r.parseRange(lowText, highText, isRange)
		if err != nil {
			return 0, err
		}
	}

	step := 1
	if hasStep {
		var err error
		step, err = parseNumber(stepText)
		if err != nil {
			return 0, fmt.Errorf("step: %w", err)
		}
		if step == 0 {
			return 0, errors.New("step 0: must be positive")
		}
		if !isRange {
			high = r.high
		}
	}

	switch {
	case low < r.low:
		return 0, fmt.Errorf("%d is less than %d", low, r.low)
	case high > r.high:
		return 0, fmt.Errorf("%d is more than %d", high, r.high)
	case low > high:
		return 0, fmt.Errorf("range from %d to %d: ends before it begins", low, high)
	}

	var set valueSet
	for value := low; value <= high; value += min(step, math.MaxInt8) { // A sum with the greatest step would overflow.
		set |= 1 << uint(value)
	}

	if isAny && step == 1 {
		set |= anyValue
	}

	return set, nil
}

// parseRange parses a value, or the two ends of a range.
func (r fieldRange) parseRange(lowText, highText string, isRange bool) (low, high int, err error) {
	low, err = r.parseValue(lowText)
	if err != nil {
		return 0, 0, err
	}
	if !isRange {
		return low, low, nil
	}

	high, err = r.parseValue(highText)
	return low, high, err
}

// parseValue parses a number or a name, in any case.
func (r fieldRange) parseValue(text string) (int, error) {
	if i := slices.Index(r.names, strings.ToLower(text)); i >= 0 {
		return r.low + i, nil
	}

	return parseNumber(text)
}

// parseNumber parses a number that is not negative.
func parseNumber(text string) (int, error) {
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number or a name of this field", text)
	}
	if number < 0 {
		return 0, fmt.Errorf("%d: must not be negative", number)
	}

	return number, nil
}
