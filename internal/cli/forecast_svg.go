// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/svg"
)

// Dimensions of the panel of a series, in pixels.
const (
	svgWidth, svgHeight = 960, 320
	svgLeft, svgRight   = 64, 16
	svgTop, svgBottom   = 56, 36
	svgPlotWidth        = svgWidth - svgLeft - svgRight
	svgPlotHeight       = svgHeight - svgTop - svgBottom
	svgTicks            = 4
)

// renderSVG writes an SVG image with one panel per series.
func renderSVG(w io.Writer, all []seriesForecast) error {
	m := svg.New(svgWidth, svgHeight*len(all))
	for i, f := range all {
		m.Group(svg.Point{Y: float64(i * svgHeight)}, func() { f.drawPanel(m) })
	}

	if _, err := m.WriteTo(w); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}

	return nil
}

// drawPanel draws the chart of one series.
func (f seriesForecast) drawPanel(m *svg.Image) {
	const gray = "#555555"
	const leftEdge = float64(svgLeft)
	const rightEdge = float64(svgWidth - svgRight)
	const bottomEdge = float64(svgHeight - svgBottom)

	cols, from, interval := f.columns(svgPlotWidth)
	top := maxUpper(cols)
	x := func(t time.Time) float64 { return leftEdge + float64(t.Sub(from))/float64(interval) }
	y := func(v float64) float64 { return svgTop + svgPlotHeight*(1-v/top) }
	lines := strings.Split(strings.TrimSpace(f.headline()), "\n")
	m.Text(svg.Point{X: leftEdge, Y: 16}, lines[0], "font-weight", "bold")

	for i, line := range lines[1:] {
		m.Text(svg.Point{X: leftEdge, Y: float64(32 + 14*i)}, line, "fill", gray)
	}

	for i := range svgTicks + 1 {
		v := top * float64(i) / svgTicks
		at := from.Add(interval * time.Duration(svgPlotWidth*i/svgTicks))
		m.Line(svg.Point{X: leftEdge, Y: y(v)}, svg.Point{X: rightEdge, Y: y(v)}, "stroke", "#dddddd")
		m.Text(svg.Point{X: leftEdge - 6, Y: y(v) + 4}, fmt.Sprintf("%.3g", v), "text-anchor", "end")
		m.Line(svg.Point{X: x(at), Y: svgTop}, svg.Point{X: x(at), Y: bottomEdge}, "stroke", "#dddddd")
		m.Text(svg.Point{X: min(x(at), svgWidth-42), Y: bottomEdge + 16}, at.UTC().Format("01-02 15:04"), "text-anchor", "middle")
	}

	var history strings.Builder
	quantiles := make([][]svg.Point, len(outputLevels()))
	for i, c := range cols {
		switch {
		case !c.hasRange: // It stays empty.
		case c.isHistory: // The line is at least one pixel high.
			fmt.Fprintf(&history, "M%d %.1fV%.1f", svgLeft+i, y(c.lower)+0.5, y(c.upper)-0.5)
		default:
			for q, v := range c.quantiles {
				quantiles[q] = append(quantiles[q], svg.Point{X: float64(svgLeft + i), Y: y(v)})
			}
		}
	}

	m.Path(history.String(), "stroke", "#3b75af")
	median := slices.Clone(quantiles[0])
	slices.Reverse(median)

	colors := []string{"#f58b2c", "#fbb777", "#fde0c5"}
	for level, color := range slices.Backward(colors) { // from the widest band to the narrowest
		m.Polygon(slices.Concat(quantiles[level+1], median), "fill", color)
	}

	m.Polyline(quantiles[0], "stroke", "#b3440a", "stroke-width", "1.5")
	start := x(f.forecast.Start)
	m.Line(svg.Point{X: start, Y: svgTop}, svg.Point{X: start, Y: bottomEdge}, "stroke", "#888888", "stroke-dasharray", "4 3")
	m.Text(svg.Point{X: rightEdge, Y: svgHeight - 4}, "blue: history; line: p50; bands: to p90, p95, p99", "text-anchor", "end", "fill", gray)
}
