// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"fmt"
	"math"
	"strings"

	"crane.io/crane/pkg/units"
)

const (
	minutesPerDay = 24 * 60
	// barWidth is the width of a bar of 1440 minutes a day; bars are logarithmic, so that small values differ.
	barWidth = 24
)

// Plot returns a table with a line and a bar for each multiplier: the minutes a day above the request and the mean request, in cores.
// It has at most 40 lines of 80 characters, of which the API accepts 4096 bytes.
func (c Calibration) Plot() string {
	var b strings.Builder
	b.WriteString("  FACTOR  MIN/DAY OVER  MEAN CORES\n")

	for _, p := range c.Points {
		minutes := minutesPerDay * float64(p.Violation)
		bar := int(math.Round(barWidth * math.Log1p(minutes) / math.Log1p(minutesPerDay)))

		line := fmt.Sprintf("  %6.3g  %12.1f  %10.3g  %s", p.Multiplier, minutes, p.Request, strings.Repeat("#", bar))
		if p.Multiplier == c.Multiplier {
			line = strings.TrimRight(line, " ") + "  selected"
		}

		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}

	return b.String()
}

// Summary compares the achieved time with the target, and states by how much a missed target is missed.
func (c Calibration) Summary() string {
	text := fmt.Sprintf("%s above the request in %s, target %s: ", minutesText(c.Achieved), c.ReplayText(), minutesText(c.Target))
	if c.Met() {
		return text + "met"
	}

	return text + "missed by " + minutesText(c.Achieved-c.Target)
}

// minutesText formats a share of the time: 0.005 is "7.2 minutes a day".
func minutesText(share units.Ratio) string {
	return fmt.Sprintf("%.1f minutes a day", minutesPerDay*float64(share))
}
