// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrTruncated reports a file without a final newline: the kernel ends every file with one.
var ErrTruncated = errors.New("ends in the middle of a line")

var errNotNumber = errors.New("not a number from 0 to 18446744073709551615")

// Lines calls each with every line, without the newline. It returns ErrTruncated, before the first call, for content that is empty or has
// no final newline, and otherwise the first error of each.
func Lines(content []byte, each func(line []byte) error) error {
	if len(content) == 0 || content[len(content)-1] != '\n' {
		return ErrTruncated
	}

	for len(content) > 0 {
		end := bytes.IndexByte(content, '\n')
		if err := each(content[:end]); err != nil {
			return err
		}

		content = content[end+1:]
	}

	return nil
}

// Field splits the first blank-separated field off a line.
func Field(line []byte) (field, rest []byte) {
	for len(line) > 0 && isBlank(line[0]) {
		line = line[1:]
	}

	end := 0
	for end < len(line) && !isBlank(line[end]) {
		end++
	}

	return line[:end], line[end:]
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// Uint parses an unsigned decimal number.
func Uint(text []byte) (uint64, error) {
	if len(text) == 0 {
		return 0, errNotNumber
	}

	var n uint64
	for _, c := range text {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, fmt.Errorf("%.40q: %w", text, errNotNumber)
		}

		n = 10*n + d
	}

	return n, nil
}

// Int parses a decimal number with an optional minus sign.
func Int(text []byte) (int64, error) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}

	n, err := Uint(text)
	if err != nil {
		return 0, err
	}

	if n > math.MaxInt64 {
		return 0, fmt.Errorf("%.40q: %w", text, errNotNumber)
	}

	if negative {
		return -int64(n), nil
	}

	return int64(n), nil
}

// ParseSingle parses a file with a single number.
func ParseSingle(content []byte) (n uint64, err error) {
	lines := 0
	err = Lines(content, func(line []byte) error {
		lines++

		if lines > 1 {
			return errors.New("more than one line")
		}

		var failed error
		n, failed = Uint(line)
		return failed
	})

	return n, err
}

// parseDecimal parses a number with up to nine decimals, such as 12.34, without sign or exponent.
func parseDecimal(text []byte) (float64, error) {
	integer, decimals, hasDecimals := bytes.Cut(text, []byte("."))
	n, err := Uint(integer)
	if err != nil || !hasDecimals {
		return float64(n), err
	}

	if len(decimals) > 9 {
		return 0, fmt.Errorf("%.40q: more than 9 decimals", text)
	}

	f, err := Uint(decimals)
	if err != nil {
		return 0, err
	}

	scale := 1.0
	for range decimals {
		scale *= 10
	}

	return float64(n) + float64(f)/scale, nil
}

// ParseKeyValues calls each for every line "key number". Other lines are skipped, since newer kernels may add some, unless they start with
// one of the needed keys.
func ParseKeyValues(content []byte, each func(key []byte, value uint64), needed ...string) error {
	return Lines(content, func(line []byte) error {
		key, rest := Field(line)
		number, rest := Field(rest)
		n, err := Uint(number)
		if end, _ := Field(rest); err == nil && len(end) > 0 {
			err = errors.New("requires a key and a number")
		}

		if err == nil {
			each(key, n)
			return nil
		}

		if slices.Contains(needed, string(key)) {
			return fmt.Errorf("%.40s: %w", key, err)
		}

		return nil
	})
}

// rowErrors counts the rows of a file that could be read and those that could not: a bad row discards a row, not a file.
type rowErrors struct {
	good  int
	first error
}

// add counts a row.
func (r *rowErrors) add(err error) {
	if err == nil {
		r.good++
	} else if r.first == nil {
		r.first = err
	}
}

// err returns the error of the first bad row if no row is good.
func (r *rowErrors) err() error {
	if r.good > 0 {
		return nil
	}

	return r.first
}

// parseColumns parses the numbers of a line into out and returns their count; further numbers are ignored.
func parseColumns(line []byte, out []uint64) (int, error) {
	for i := range out {
		var field []byte
		if field, line = Field(line); len(field) == 0 {
			return i, nil
		}

		n, err := Uint(field)
		if err != nil {
			return i, err
		}

		out[i] = n
	}

	return len(out), nil
}
