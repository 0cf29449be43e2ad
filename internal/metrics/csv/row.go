// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package csv

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/series"
)

// row is one row of a file.
type row struct {
	ms    int64 // since the Unix epoch
	value float64
	line  int
}

// maxUnixSeconds is the end of the year 2199. Larger times are most likely in milliseconds.
const maxUnixSeconds = 7258118399

// parseRow parses a line. invalid is set where the value is infinite or negative and became a gap.
func parseRow(line []byte) (r row, invalid bool, err error) {
	first, second, ok := bytes.Cut(line, []byte(","))
	if !ok || bytes.IndexByte(second, ',') >= 0 {
		return row{}, false, fmt.Errorf("%q: must have two fields, ts,value", shorten(string(line)))
	}

	if r.ms, err = parseTime(field(first)); err != nil {
		return row{}, false, err
	}

	text := field(second)
	if text == "" {
		r.value = series.Gap()
		return r, false, nil
	}

	// A value out of range is parsed as infinite, which becomes a gap below.
	r.value, err = strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || isHexadecimal(text) {
		return row{}, false, fmt.Errorf("value %q is not a number", shorten(text))
	}

	if math.IsInf(r.value, 0) || r.value < 0 {
		r.value = series.Gap()
		invalid = true
	}

	return r, invalid, nil
}

// isHexadecimal reports whether a text is in a format that strconv parses but exporters do not write: 0x1p-2, 1_000.
func isHexadecimal(text string) bool { return strings.ContainsAny(text, "xX_") }

// parseTime parses seconds or RFC 3339 and returns milliseconds.
func parseTime(text string) (int64, error) {
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || isHexadecimal(text) {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return 0, fmt.Errorf("time %q: must be seconds since 1970 or RFC 3339", shorten(text))
		}

		s = float64(at.UnixMilli()) / 1000
	}

	switch {
	case math.IsNaN(s) || s < 0:
		return 0, fmt.Errorf("time %q lies before 1970", shorten(text))
	case s > maxUnixSeconds:
		return 0, fmt.Errorf("time %q lies after 2199: must be in seconds, not milliseconds", shorten(text))
	}

	return int64(math.Round(s * 1000)), nil
}

// singleRowStep is the step of a series with one row.
const singleRowStep = time.Minute

// toGrid sorts rows and places them on a regular grid. replaced counts the rows with a later one for the same cell. An error begins with the
// number of a line.
func toGrid(rows []row) (s series.Series, replaced int, err error) {
	if len(rows) == 0 {
		return series.Series{}, 0, nil
	}

	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.ms, b.ms) })
	step := commonStep(rows)

	// The size is checked before anything is allocated: two distant timestamps could demand any amount of memory.
	first := rows[0].ms
	cells := (rows[len(rows)-1].ms-first+step/2)/step + 1
	if cells > MaxCells {
		return series.Series{}, 0, tooManyCells(rows, step)
	}

	s = series.Series{
		Start:  time.UnixMilli(first).UTC(),
		Step:   time.Duration(step) * time.Millisecond,
		Values: make([]float64, cells),
	}

	for i := range s.Values {
		s.Values[i] = series.Gap()
	}

	last := int64(-1)
	for _, r := range rows {
		cell := (r.ms - first + step/2) / step
		if cell == last {
			replaced++
		}

		last = cell
		s.Values[cell] = r.value
	}

	return s, replaced, nil
}

// commonStep returns the most common time between neighboring rows with different times, in milliseconds.
func commonStep(sorted []row) int64 {
	count := map[int64]int{}
	for i := 1; i < len(sorted); i++ {
		if d := sorted[i].ms - sorted[i-1].ms; d > 0 {
			count[d]++
		}
	}

	best := singleRowStep.Milliseconds()
	votes := 0
	for d, n := range count {
		if n > votes || n == votes && d < best {
			best = d
			votes = n
		}
	}

	return best
}

// tooManyCells returns an error with the longest gap of a file.
func tooManyCells(sorted []row, step int64) error {
	at := 1
	for i := 2; i < len(sorted); i++ {
		if sorted[i].ms-sorted[i-1].ms > sorted[at].ms-sorted[at-1].ms {
			at = i
		}
	}

	gap := time.Duration(sorted[at].ms-sorted[at-1].ms) * time.Millisecond
	return fmt.Errorf("%d: no values for %v before this row: at a step of %v the series would have more than %d values; split the file",
		sorted[at].line, gap, time.Duration(step)*time.Millisecond, MaxCells)
}

// shorten truncates a text for an error.
func shorten(text string) string {
	const maxLength = 40
	if len(text) > maxLength {
		return text[:maxLength] + "..."
	}

	return text
}
