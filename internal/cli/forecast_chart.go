// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"crane.io/crane/pkg/forecast"
)

const (
	minChartWidth, defaultChartWidth, maxChartWidth = 40, 100, 400
	chartHeight                                     = 16
	// chartMargin is the room of the labels at the left.
	chartMargin = 10
	// pastShown is how much history is drawn, as a multiple of the horizon.
	pastShown = 2
)

// column is what one column of a chart shows: the range of history, or quantiles, over a stretch of time.
type column struct {
	past          bool
	known         bool
	lowest, upper float64
	// quantiles at shownLevels, each the highest of the stretch.
	quantiles [4]float64
}

// columns cuts history and forecast into n stretches of equal length and returns them with the first instant.
func (f forecastOf) columns(n int) (out []column, from time.Time, each time.Duration) {
	end := f.forecast.End()
	from = f.forecast.Start.Add(-pastShown * end.Sub(f.forecast.Start))
	if from.Before(f.history.Start) {
		from = f.history.Start
	}
	each = max(end.Sub(from)/time.Duration(n), 1)
	out = make([]column, n)
	for i := range out {
		start := from.Add(time.Duration(i) * each)
		stop := start.Add(each)
		out[i] = f.column(start, stop)
	}
	return out, from, each
}

func (f forecastOf) column(start, stop time.Time) column {
	c := column{past: start.Before(f.forecast.Start)}
	if !c.past {
		// A stretch shorter than a step lies within one.
		q, ok := f.forecast.At(start)
		c.known = ok
		for l, level := range shownLevels() {
			c.quantiles[l] = q.At(level)
			if v, more := f.forecast.Max(level, start, stop); more {
				c.quantiles[l] = max(c.quantiles[l], v)
			}
		}
		c.lowest, c.upper = c.quantiles[0], c.quantiles[3]
		return c
	}
	begin := start.Add(-start.Sub(f.history.Start) % max(f.history.Step, 1))
	c.lowest = math.Inf(1)
	for _, v := range f.history.Between(begin, stop).Values {
		if forecast.Usable(v) {
			c.known, c.lowest, c.upper = true, min(c.lowest, v), max(c.upper, v)
		}
	}
	return c
}

// drawChart draws history and quantiles in plain text, width columns wide.
func drawChart(f forecastOf, width int) string {
	width = min(max(width, minChartWidth), maxChartWidth)
	cols, from, each := f.columns(width - chartMargin)
	top := 0.0
	for _, c := range cols {
		if c.known {
			top = max(top, c.upper)
		}
	}
	if top <= 0 {
		top = 1
	}
	var b strings.Builder
	for row := chartHeight - 1; row >= 0; row-- {
		label := ""
		if row%5 == 0 {
			label = fmt.Sprintf("%.3g", top*float64(row)/(chartHeight-1))
		}
		line := make([]rune, len(cols))
		for i, c := range cols {
			line[i] = c.mark(row, top)
		}
		fmt.Fprintf(&b, "%*s │%s\n", chartMargin-2, label, strings.TrimRight(string(line), " "))
	}
	now := min(int(f.forecast.Start.Sub(from)/each), len(cols)-1)
	fmt.Fprintf(&b, "%*s └%s\n", chartMargin-2, "", strings.Repeat("─", now)+"┴"+strings.Repeat("─", len(cols)-now-1))
	b.WriteString(timeAxis(f, from, chartMargin, now, len(cols)))
	b.WriteString("█ history   ━ p50   ▓ to p90   ▒ to p95   ░ to p99\n")
	return b.String()
}

// mark is the rune of a column in a row, of which 0 is the lowest.
func (c column) mark(row int, top float64) rune {
	if !c.known {
		return ' '
	}
	rowOf := func(v float64) int { return int(math.Round(v / top * (chartHeight - 1))) }
	if c.past {
		if row >= rowOf(c.lowest) && row <= rowOf(c.upper) {
			return '█'
		}
		return ' '
	}
	switch {
	case row == rowOf(c.quantiles[0]):
		return '━'
	case row < rowOf(c.quantiles[0]), row > rowOf(c.quantiles[3]):
		return ' '
	case row <= rowOf(c.quantiles[1]):
		return '▓'
	case row <= rowOf(c.quantiles[2]):
		return '▒'
	}
	return '░'
}

// timeAxis writes the first instant, now and the last below the axis, as far as there is room.
func timeAxis(f forecastOf, from time.Time, margin, now, n int) string {
	const layout = "01-02 15:04"
	line := []rune(strings.Repeat(" ", margin+n))
	put := func(at int, text string) {
		at = max(0, min(at, len(line)-len(text)))
		for _, r := range line[max(0, at-1):min(len(line), at+len(text)+1)] {
			if r != ' ' {
				return
			}
		}
		copy(line[at:], []rune(text))
	}
	put(margin+now-len(layout)/2, f.forecast.Start.UTC().Format(layout))
	put(margin, from.UTC().Format(layout))
	put(len(line)-len(layout), f.forecast.End().UTC().Format(layout))
	return strings.TrimRight(string(line), " ") + "\n"
}
