// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings parses user-supplied settings strictly: text by key, and JSON documents.
//
// Reader reads settings that are text, such as the configuration of a recommender; Decode reads a JSON document into a
// struct. Both reject unknown fields and collect every error as a FieldError, which names the path, the value and what is
// allowed. Which settings exist and what they mean belongs to the packages that use this one.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FieldError is a setting or field that cannot be used.
type FieldError struct {
	// Path leads to the field, for example groups[1].prices.cpu, or is the key of a setting.
	Path string
	// Value is the rejected value as text; empty where the field is missing.
	Value string
	// Allowed describes the accepted values.
	Allowed string
	// Unknown marks a setting that does not exist.
	Unknown bool
}

// Error returns `path: "value": allowed`.
func (e *FieldError) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if e.Value != "" {
		fmt.Fprintf(&b, "%q: ", e.Value)
	}

	return b.String() + e.Allowed
}

// SplitUnknown returns config without the keys that err, an error of a Reader, reports as unknown, and these keys, sorted. A key
// may have a prefix that ends in a dot and that the Reader did not see.
func SplitUnknown(config map[string]string, err error) (recognized map[string]string, unknown []string) {
	paths := unknownPaths(err)
	recognized = maps.Clone(config)
	maps.DeleteFunc(recognized, func(key, _ string) bool {
		return slices.ContainsFunc(paths, func(path string) bool { return key == path || strings.HasSuffix(key, "."+path) })
	})

	for key := range config {
		if _, ok := recognized[key]; !ok {
			unknown = append(unknown, key)
		}
	}

	slices.Sort(unknown)
	return recognized, unknown
}

// unknownPaths returns the paths of the unknown settings in a tree of joined errors.
func unknownPaths(err error) []string {
	if e, ok := err.(*FieldError); ok { //nolint:errorlint // the tree is walked node by node
		if e.Unknown {
			return []string{e.Path}
		}

		return nil
	}

	switch e := err.(type) { //nolint:errorlint // the tree is walked node by node
	case interface{ Unwrap() error }:
		return unknownPaths(e.Unwrap())
	case interface{ Unwrap() []error }:
		var out []string
		for _, joined := range e.Unwrap() {
			out = append(out, unknownPaths(joined)...)
		}

		return out
	}

	return nil
}

// Errors collects field errors. The zero value is empty.
type Errors []*FieldError

// Fail adds an error.
func (e *Errors) Fail(path, value, allowed string) {
	*e = append(*e, &FieldError{Path: path, Value: value, Allowed: allowed})
}

// Check adds an error unless ok is true.
func (e *Errors) Check(ok bool, path string, value any, allowed string) {
	if !ok {
		e.Fail(path, fmt.Sprint(value), allowed)
	}
}

// AddUnreported adds those of more whose field has no error yet, and neither has a field that contains it or is contained
// in it, so that one mistake leads to one message.
func (e *Errors) AddUnreported(more Errors) {
	reported := slices.Clone(*e)
	for _, err := range more {
		if !slices.ContainsFunc(reported, func(r *FieldError) bool {
			return r.Path == "" || r.Path == err.Path || contains(r.Path, err.Path) || contains(err.Path, r.Path)
		}) {
			*e = append(*e, err)
		}
	}
}

// contains reports whether the field at path lies within the one at parent.
func contains(parent, path string) bool {
	return strings.HasPrefix(path, parent+".") || strings.HasPrefix(path, parent+"[")
}

// Below returns the errors with parent prepended to their paths.
func (e Errors) Below(parent string) Errors {
	out := make(Errors, len(e))
	for i, err := range e {
		out[i] = &FieldError{Path: Join(parent, err.Path), Value: err.Value, Allowed: err.Allowed}
	}

	return out
}

// Err returns all errors joined, ordered by path; nil if there are none.
func (e Errors) Err() error {
	slices.SortStableFunc(e, func(a, b *FieldError) int { return strings.Compare(a.Path, b.Path) })
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}

	return errors.Join(errs...)
}

// Join appends a field name to a path.
func Join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}

	return path + "." + name
}

// nearest returns a hint at the known names that are most similar to name, "did you mean a or b?", or at all of them if none
// is similar.
func nearest(name string, names []string) string {
	slices.Sort(names)
	best := len(name)/2 + 1
	near := []string(nil)
	for _, k := range names {
		switch d := editDistance(name, k); {
		case d < best:
			best = d
			near = []string{k}
		case d == best && len(near) > 0:
			near = append(near, k)
		}
	}

	if len(near) == 0 {
		return "known are " + strings.Join(names, ", ")
	}

	return "did you mean " + strings.Join(near, " or ") + "?"
}

// editDistance returns the Levenshtein distance: the least number of bytes inserted, deleted or replaced that turns a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}

			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal = row[j+1]
			row[j+1] = next
		}
	}

	return row[len(b)]
}
