// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
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

// svgPanel is the chart of one series. Coordinates are pixels.
type svgPanel struct {
	chartFrame

	// Offset is the distance from the top of the image.
	Offset  int
	Title   string
	Details []htmlMark
	// History is an SVG path, Median and the bands are lists of points.
	History, Median string
	Bands           []svgBand
	// ForecastStart is the x coordinate of the start of the forecast.
	ForecastStart float64
}

// svgBand is the area between the median and a quantile.
type svgBand struct{ Color, Points string }

// renderSVG writes an SVG image with one panel per series.
func renderSVG(w io.Writer, all []seriesForecast) error {
	panels := make([]svgPanel, 0, len(all))
	for i, f := range all {
		panels = append(panels, newSVGPanel(f, i*svgHeight))
	}
	return executeTemplate(w, "forecast", map[string]any{"Width": svgWidth, "Height": svgHeight * len(all), "Panels": panels})
}

func newSVGPanel(f seriesForecast, offset int) svgPanel {
	cols, from, interval := f.columns(svgPlotWidth)
	top := maxUpper(cols)
	x := func(t time.Time) float64 { return roundTenths(svgLeft + float64(t.Sub(from))/float64(interval)) }
	y := func(v float64) float64 { return roundTenths(svgTop + svgPlotHeight*(1-v/top)) }
	lines := strings.Split(strings.TrimSpace(f.headline()), "\n")
	p := svgPanel{
		chartFrame: chartFrame{Width: svgWidth, Height: svgHeight, Left: svgLeft, Right: svgWidth - svgRight, Top: svgTop, Bottom: svgHeight - svgBottom},
		Offset:     offset, Title: lines[0], ForecastStart: x(f.forecast.Start),
	}
	for i, line := range lines[1:] {
		p.Details = append(p.Details, htmlMark{X: svgLeft, Y: float64(32 + 14*i), Label: line})
	}
	for i := range svgTicks + 1 {
		v, at := top*float64(i)/svgTicks, from.Add(interval*time.Duration(svgPlotWidth*i/svgTicks))
		p.YTicks = append(p.YTicks, htmlMark{Y: y(v), Label: fmt.Sprintf("%.3g", v)})
		p.XTicks = append(p.XTicks, htmlMark{X: x(at), LabelX: min(x(at), svgWidth-42), Label: at.UTC().Format("01-02 15:04")})
	}
	quantiles := make([][]string, len(outputLevels()))
	for i, c := range cols {
		switch {
		case !c.known: // It stays empty.
		case c.isHistory: // The line is at least one pixel high.
			p.History += fmt.Sprintf("M%d %.1fV%.1f", svgLeft+i, y(c.lower)+0.5, y(c.upper)-0.5)
		default:
			for q, v := range c.quantiles {
				quantiles[q] = append(quantiles[q], fmt.Sprintf("%d,%.1f", svgLeft+i, y(v)))
			}
		}
	}
	p.Median = strings.Join(quantiles[0], " ")
	median := slices.Clone(quantiles[0])
	slices.Reverse(median)
	for level, color := range []string{"#f58b2c", "#fbb777", "#fde0c5"} { // Drawn from the widest to the narrowest.
		points := strings.Join(append(quantiles[level+1], median...), " ")
		p.Bands = slices.Insert(p.Bands, 0, svgBand{Color: color, Points: points})
	}
	return p
}

func roundTenths(v float64) float64 { return math.Round(10*v) / 10 }
