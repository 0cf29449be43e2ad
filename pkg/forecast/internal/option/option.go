// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package option parses the string-typed settings of forecasting algorithms. Every invalid field is reported with its
// path, its value and the allowed values.
package option

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// Reader parses fields and collects errors.
type Reader struct {
	errs []error
}

// Err returns all errors, joined; nil if there are none.
func (r *Reader) Err() error { return errors.Join(r.errs...) }

// Fail reports a field that contradicts another.
func (r *Reader) Fail(path, value, want string) {
	r.errs = append(r.errs, fmt.Errorf("%s: %q: %s", path, value, want))
}

// Number reads a number within [low, high]; an empty text is the default.
func (r *Reader) Number(path, text string, otherwise, low, high float64) float64 {
	text = strings.TrimSpace(text)
	if text == "" {
		return otherwise
	}

	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < low || v > high {
		r.Fail(path, text, fmt.Sprintf("must be a number from %g to %g", low, high))
		return otherwise
	}

	return v
}

// Count reads an optional whole number within [low, high]; nil is the default.
func (r *Reader) Count(path string, value *int32, otherwise, low, high int) int {
	if value == nil {
		return otherwise
	}

	if v := int(*value); v >= low && v <= high {
		return v
	}

	r.Fail(path, strconv.Itoa(int(*value)), fmt.Sprintf("must be from %d to %d", low, high))
	return otherwise
}

// Duration reads a duration within [low, high]; an empty text is the default.
func (r *Reader) Duration(path, text string, otherwise, low, high time.Duration) time.Duration {
	text = strings.TrimSpace(text)
	if text == "" {
		return otherwise
	}

	d, err := units.ParseDuration(text)
	if err != nil {
		r.Fail(path, text, err.Error())
		return otherwise
	}

	if d < low || d > high {
		r.Fail(path, text, fmt.Sprintf("must be from %s to %s", units.FormatDuration(low), units.FormatDuration(high)))
		return otherwise
	}

	return d
}
