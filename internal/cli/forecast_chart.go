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
	// chartMargin is the width of the axis labels.
	chartMargin = 10
	// historyMultiple is the length of the history in the chart as a multiple of the horizon.
	historyMultiple = 2
)

// column is the range of the history, or the quantiles of the forecast, in one column of a chart.
type column struct {
	isHistory    bool
	hasRange     bool
	lower, upper float64
	// quantiles are the maxima of outputLevels in the column.
	quantiles [4]float64
}

// columns divides history and forecast into n intervals of equal length and returns the start of the first and the
// length.
func (f seriesForecast) columns(n int) (out []column, from time.Time, interval time.Duration) {
	end := f.forecast.End()
	from = f.forecast.Start.Add(-historyMultiple * end.Sub(f.forecast.Start))
	if from.Before(f.history.Start) {
		from = f.history.Start
	}

	interval = max(end.Sub(from)/time.Duration(n), 1)
	out = make([]column, n)
	for i := range out {
		start := from.Add(time.Duration(i) * interval)
		stop := start.Add(interval)
		out[i] = f.column(start, stop)
	}

	return out, from, interval
}

func (f seriesForecast) column(start, stop time.Time) column {
	c := column{isHistory: start.Before(f.forecast.Start)}
	if !c.isHistory {
		// An interval can be shorter than a step.
		q, ok := f.forecast.At(start)

		c.hasRange = ok
		for l, level := range outputLevels() {
			c.quantiles[l] = q.At(level)
			if v, more := f.forecast.Max(level, start, stop); more {
				c.quantiles[l] = max(c.quantiles[l], v)
			}
		}

		c.lower = c.quantiles[0]
		c.upper = c.quantiles[3]
		return c
	}

	begin := start.Add(-start.Sub(f.history.Start) % max(f.history.Step, 1))
	c.lower = math.Inf(1)
	for _, v := range f.history.Between(begin, stop).Values {
		if forecast.Usable(v) {
			c.hasRange = true
			c.lower = min(c.lower, v)
			c.upper = max(c.upper, v)
		}
	}

	return c
}

// formatChart plots history and quantiles as text with the given width.
func formatChart(f seriesForecast, width int) string {
	width = min(max(width, minChartWidth), maxChartWidth)
	cols, from, interval := f.columns(width - chartMargin)
	top := maxUpper(cols)

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

	now := min(int(f.forecast.Start.Sub(from)/interval), len(cols)-1)
	fmt.Fprintf(&b, "%*s └%s\n", chartMargin-2, "", strings.Repeat("─", now)+"┴"+strings.Repeat("─", len(cols)-now-1))
	b.WriteString(timeAxis(f, from, chartMargin, now, len(cols)))
	b.WriteString("█ history   ━ p50   ▓ to p90   ▒ to p95   ░ to p99\n")

	return b.String()
}

// maxUpper returns the upper end of the value axis.
func maxUpper(cols []column) float64 {
	top := 0.0
	for _, c := range cols {
		if c.hasRange {
			top = max(top, c.upper)
		}
	}

	if top <= 0 {
		return 1
	}

	return top
}

// mark returns the rune of the column in a row; row 0 is the lowest.
func (c column) mark(row int, top float64) rune {
	if !c.hasRange {
		return ' '
	}

	rowOf := func(v float64) int { return int(math.Round(v / top * (chartHeight - 1))) }
	if c.isHistory {
		if row >= rowOf(c.lower) && row <= rowOf(c.upper) {
			return '█'
		}

		return ' '
	}

	// The bands between the quantiles get lighter from the center to the edge.
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

// timeAxis returns the labels of the start, the current time and the end, as far as they do not overlap.
func timeAxis(f seriesForecast, from time.Time, margin, now, n int) string {
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
