// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"strings"
	"testing"
)

// TestPlot checks that each multiplier has a line, that bars grow with the time above the request, and that the chosen one is marked.
func TestPlot(t *testing.T) {
	c := Calibration{Target: 0.005, Achieved: 0.01, Multiplier: 1.5, Days: 12, Points: []Point{{0.6, 1, 0.3}, {1.5, 0.01, 12}, {2.7, 0, 1234}}}
	want := "  FACTOR  MIN/DAY OVER  MEAN CORES\n" +
		"     0.6        1440.0         0.3  ########################\n" +
		"     1.5          14.4          12  #########  selected\n" +
		"     2.7           0.0    1.23e+03\n"

	if got := c.Plot(); got != want {
		t.Errorf("Plot() =\n%swant\n%s", got, want)
	}
	if got := c.Summary(); !strings.HasSuffix(got, "target 7.2 minutes a day: missed by 7.2 minutes a day") {
		t.Errorf("Summary() = %q, want a target of 7.2 minutes a day, missed by as much", got)
	}

	for len(c.Points) < candidateCount/2 {
		c.Points = append(c.Points, Point{1.23456789, 0.999999, 123456789})
	}

	if got := c.Plot(); len(got) > 4096 {
		t.Errorf("Plot() has %d bytes, want at most the 4096 of the field of the API", len(got))
	}
}
