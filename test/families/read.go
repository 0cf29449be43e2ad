// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package families

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/series"
)

// readCSV reads a file with the columns ts,value into a series whose step is the most frequent distance.
func readCSV(path string) (series.Series, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return series.Series{}, err
	}

	var at []int64
	var values []float64
	counts := map[int64]int{}
	for line := range strings.Lines(string(data)) {
		stamp, value, _ := strings.Cut(strings.TrimSpace(line), ",")
		if stamp == "ts" {
			continue
		}

		seconds, errStamp := strconv.ParseInt(stamp, 10, 64)
		v, errValue := strconv.ParseFloat(value, 64)
		if err := errors.Join(errStamp, errValue); err != nil {
			return series.Series{}, err
		}

		if len(at) > 0 {
			counts[seconds-at[len(at)-1]]++
		}

		at = append(at, seconds)
		values = append(values, v)
	}

	// The most frequent distance is the step, as recordings have gaps.
	step := int64(0)
	for d, n := range counts {
		if d > 0 && (n > counts[step] || n == counts[step] && d < step) {
			step = d
		}
	}

	if step == 0 {
		return series.Series{}, errors.New("fewer than two samples")
	}

	// Samples go to the nearest cell of the grid; cells without one are gaps.
	out := series.Series{Start: time.Unix(at[0], 0).UTC(), Step: time.Duration(step) * time.Second}

	out.Values = make([]float64, (at[len(at)-1]-at[0])/step+1)
	for i := range out.Values {
		out.Values[i] = series.Gap()
	}

	for i, v := range values {
		if cell := (at[i] - at[0] + step/2) / step; cell >= 0 && int(cell) < len(out.Values) {
			out.Values[cell] = v
		}
	}

	return out, nil
}
