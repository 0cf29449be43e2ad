// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// Reader reads settings one by one and collects their errors. An absent setting has its default.
type Reader struct {
	config map[string]string
	seen   map[string]bool
	errs   Errors
}

// Read returns a reader of a map, which it does not change. A setting with an empty text counts as given.
func Read(config map[string]string) *Reader {
	return &Reader{config: config, seen: map[string]bool{}}
}

// Has reports whether a setting is given.
func (r *Reader) Has(key string) bool {
	_, ok := r.config[key]
	return ok
}

// Keys returns the given keys that begin with prefix, sorted. They count as known.
func (r *Reader) Keys(prefix string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(r.config)) {
		if strings.HasPrefix(key, prefix) {
			r.seen[key] = true
			out = append(out, key)
		}
	}

	return out
}

// Parse calls parse with the text of a setting, without the space around it, unless the setting is absent. The error of
// parse describes what is allowed.
func (r *Reader) Parse(key string, parse func(text string) error) {
	r.seen[key] = true
	text, ok := r.config[key]
	if !ok {
		return
	}

	if err := parse(strings.TrimSpace(text)); err != nil {
		r.Fail(key, text, err.Error())
	}
}

// Text reads any text.
func (r *Reader) Text(key, absent string) string {
	return read(r, key, absent, func(text string) (string, error) { return text, nil })
}

// Number reads a number from low to high.
func (r *Reader) Number(key string, absent, low, high float64) float64 {
	return read(r, key, absent, func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= low && v <= high) {
			return 0, fmt.Errorf("must be a number from %g to %g", low, high)
		}

		return v, nil
	})
}

// Ratio reads a ratio from low to high.
func (r *Reader) Ratio(key string, absent, low, high units.Ratio) units.Ratio {
	return units.Ratio(r.Number(key, float64(absent), float64(low), float64(high)))
}

// Share reads a ratio from 0 to 1.
func (r *Reader) Share(key string, absent units.Ratio) units.Ratio {
	return r.Ratio(key, absent, 0, 1)
}

// Duration reads a duration from low to high.
func (r *Reader) Duration(key string, absent, low, high time.Duration) time.Duration {
	return read(r, key, absent, func(text string) (time.Duration, error) {
		d, err := units.ParseDuration(text)
		if err != nil || d < low || d > high {
			return 0, fmt.Errorf("must be a duration from %s to %s", units.FormatDuration(low), units.FormatDuration(high))
		}

		return d, nil
	})
}

// Hours reads a duration from low to high hours and rounds it up to whole hours.
func (r *Reader) Hours(key string, absent, low, high int) int {
	hours := func(n int) time.Duration { return time.Duration(n) * time.Hour }
	return int((r.Duration(key, hours(absent), hours(low), hours(high)) + time.Hour - 1) / time.Hour)
}

// Flag reads true or false.
func (r *Reader) Flag(key string, absent bool) bool {
	return read(r, key, absent, func(text string) (bool, error) {
		v, err := strconv.ParseBool(text)
		if err != nil {
			return false, errors.New("must be true or false")
		}

		return v, nil
	})
}

// Words reads one or more of the allowed words, separated by commas.
func (r *Reader) Words(key string, absent, allowed []string) []string {
	return read(r, key, absent, func(text string) ([]string, error) {
		words := strings.Split(text, ",")
		for i := range words {
			words[i] = strings.TrimSpace(words[i])
			if !slices.Contains(allowed, words[i]) {
				return nil, fmt.Errorf("must be one or more of %s", strings.Join(allowed, ", "))
			}
		}

		return words, nil
	})
}

// read returns the parsed setting, or absent if it is not given or not valid.
func read[T any](r *Reader, key string, absent T, parse func(text string) (T, error)) T {
	out := absent
	r.Parse(key, func(text string) error {
		v, err := parse(text)
		if err == nil {
			out = v
		}

		return err
	})

	return out
}

// Fail adds an error, for example about a setting that contradicts another.
func (r *Reader) Fail(key, value, allowed string) { r.errs.Fail(key, value, allowed) }

// Err returns the errors of all settings that were read and of all keys that were not, joined, each a *FieldError; nil if
// there are none. It is called last.
func (r *Reader) Err() error {
	for _, key := range slices.Sorted(maps.Keys(r.config)) {
		if !r.seen[key] {
			allowed := "unknown key; " + nearest(key, slices.Collect(maps.Keys(r.seen)))
			r.errs = append(r.errs, &FieldError{
				Path:    key,
				Value:   r.config[key],
				Allowed: allowed,
				Unknown: true,
			})
		}
	}

	return r.errs.Err()
}
