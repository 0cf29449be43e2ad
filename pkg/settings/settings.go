// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings reads the settings of a recommender, which are text by key, as gocrane's are. What belongs in is how a
// number is written and how an error names key, value and what is allowed; which keys there are is each recommender's own.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/series"
)

// FieldError is a setting that cannot be used.
type FieldError struct {
	Path, Value string
	// Allowed says what the value may be, or which keys there are.
	Allowed string
}

// Error names key, value and what is allowed.
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %q: %s", e.Path, e.Value, e.Allowed) }

// Reader reads settings one by one and collects what is wrong with them. A setting that is absent has its default.
type Reader struct {
	config map[string]string
	known  []string
	errs   []error
}

// Read begins to read a map, which is not changed.
func Read(config map[string]string) *Reader { return &Reader{config: config} }

// Has tells whether a setting is there.
func (r *Reader) Has(key string) bool {
	_, ok := r.config[key]
	return ok
}

// Number is a number from low to high.
func (r *Reader) Number(key string, absent, low, high float64) float64 {
	text, given := r.text(key)
	if !given {
		return absent
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= low && v <= high) {
		r.fail(key, fmt.Sprintf("must be a number from %g to %g", low, high))
		return absent
	}
	return v
}

// Share is a number from 0 to 1.
func (r *Reader) Share(key string, absent series.Ratio) series.Ratio {
	return series.Ratio(r.Number(key, float64(absent), 0, 1))
}

// Hours is a duration of whole hours, rounded up, from low to high hours.
func (r *Reader) Hours(key string, absent, low, high int) int {
	text, given := r.text(key)
	if !given {
		return absent
	}
	d, err := series.ParseDuration(text)
	if err != nil || d < time.Duration(low)*time.Hour || d > time.Duration(high)*time.Hour {
		hour := func(n int) string { return series.FormatDuration(time.Duration(n) * time.Hour) }
		r.fail(key, fmt.Sprintf("must be a duration from %s to %s", hour(low), hour(high)))
		return absent
	}
	return int((d + time.Hour - 1) / time.Hour)
}

// Flag is true or false.
func (r *Reader) Flag(key string, absent bool) bool {
	text, given := r.text(key)
	if !given {
		return absent
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		r.fail(key, "must be true or false")
		return absent
	}
	return v
}

// Words are words out of a list, with commas between them.
func (r *Reader) Words(key string, absent, allowed []string) []string {
	text, given := r.text(key)
	if !given {
		return absent
	}
	var out []string
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if !slices.Contains(allowed, word) {
			r.fail(key, "must be one or more of "+strings.Join(allowed, ", "))
			return absent
		}
		out = append(out, word)
	}
	return out
}

// Err is everything that was wrong: values that do not parse, and keys that were not asked for.
func (r *Reader) Err() error {
	slices.Sort(r.known)
	for _, key := range slices.Sorted(maps.Keys(r.config)) {
		if !slices.Contains(r.known, key) {
			r.errs = append(r.errs, &FieldError{Path: key, Value: r.config[key], Allowed: "unknown key; there are " + strings.Join(r.known, ", ")})
		}
	}
	return errors.Join(r.errs...)
}

func (r *Reader) text(key string) (string, bool) {
	r.known = append(r.known, key)
	text, given := r.config[key]
	return strings.TrimSpace(text), given
}

func (r *Reader) fail(key, allowed string) {
	r.errs = append(r.errs, &FieldError{Path: key, Value: r.config[key], Allowed: allowed})
}
