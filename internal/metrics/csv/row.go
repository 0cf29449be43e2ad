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

// row is one line of a file.
type row struct {
	ms    int64 // since the Unix epoch
	value float64
	line  int
}

// maxUnixSeconds is the end of the year 2199; later times are most likely in milliseconds.
const maxUnixSeconds = 7258118399

// parseRow reads a line. bad tells that the value cannot be a use and became a gap.
func parseRow(line []byte) (r row, bad bool, err error) {
	first, second, ok := bytes.Cut(line, []byte(","))
	if !ok || bytes.IndexByte(second, ',') >= 0 {
		return row{}, false, fmt.Errorf("%q: want two fields, ts,value", shorten(string(line)))
	}
	if r.ms, err = parseTime(field(first)); err != nil {
		return row{}, false, err
	}
	text := field(second)
	if text == "" {
		r.value = series.Gap()
		return r, false, nil
	}
	r.value, err = strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || isHexadecimal(text) {
		return row{}, false, fmt.Errorf("value %q is not a number", shorten(text))
	}
	if math.IsInf(r.value, 0) || r.value < 0 {
		r.value, bad = series.Gap(), true
	}
	return r, bad, nil
}

// isHexadecimal refuses what strconv reads and no exporter of series writes: 0x1p-2, 1_000.
func isHexadecimal(text string) bool { return strings.ContainsAny(text, "xX_") }

// parseTime reads seconds or RFC 3339 and returns milliseconds.
func parseTime(text string) (int64, error) {
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || isHexadecimal(text) {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return 0, fmt.Errorf("time %q: want seconds since 1970 or RFC 3339", shorten(text))
		}
		s = float64(at.UnixMilli()) / 1000
	}
	switch {
	case math.IsNaN(s) || s < 0:
		return 0, fmt.Errorf("time %q lies before 1970", shorten(text))
	case s > maxUnixSeconds:
		return 0, fmt.Errorf("time %q lies after 2199: want seconds, not milliseconds", shorten(text))
	}
	return int64(math.Round(s * 1000)), nil
}

// singleRowStep is the step of a series with one row.
const singleRowStep = time.Minute

// toGrid sorts rows and puts them on a regular grid. replaced counts the rows that gave way to a later one. An error
// begins with the number of a line.
func toGrid(rows []row) (s series.Series, replaced int, err error) {
	if len(rows) == 0 {
		return series.Series{}, 0, nil
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.ms, b.ms) })
	step := commonStep(rows)
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
	taken := int64(-1)
	for _, r := range rows {
		cell := (r.ms - first + step/2) / step
		if cell == taken {
			replaced++
		}
		taken = cell
		s.Values[cell] = r.value
	}
	return s, replaced, nil
}

// commonStep is the most common distance between neighbours that differ, in milliseconds.
func commonStep(sorted []row) int64 {
	count := map[int64]int{}
	for i := 1; i < len(sorted); i++ {
		if d := sorted[i].ms - sorted[i-1].ms; d > 0 {
			count[d]++
		}
	}
	best, votes := singleRowStep.Milliseconds(), 0
	for d, n := range count {
		if n > votes || n == votes && d < best {
			best, votes = d, n
		}
	}
	return best
}

// tooManyCells explains why a file has too many cells.
func tooManyCells(sorted []row, step int64) error {
	at := 1
	for i := 2; i < len(sorted); i++ {
		if sorted[i].ms-sorted[i-1].ms > sorted[at].ms-sorted[at-1].ms {
			at = i
		}
	}
	hole := time.Duration(sorted[at].ms-sorted[at-1].ms) * time.Millisecond
	return fmt.Errorf("%d: nothing for %v before this row: at a step of %v the series would have more than %d values; split the file",
		sorted[at].line, hole, time.Duration(step)*time.Millisecond, MaxCells)
}

// shorten keeps foreign text short in an error.
func shorten(text string) string {
	const most = 40
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
