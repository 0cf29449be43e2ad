// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart draws load and pod capacity over time: a line of text per sample and an SVG chart of all samples.
package chart

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// Point is one sample.
type Point struct {
	// After is the time since the first sample.
	After time.Duration
	// Load is the external load, Desired the number of pods of the spec, Ready the number of ready pods.
	Load           float64
	Desired, Ready int32
}

// Scale contains the load that a pod can serve and the largest expected load.
type Scale struct {
	PodCapacity, MaxLoad float64
}

// width is the width of the bars of a text chart in characters.
const width = 56

// Row formats one sample as text: the load as a bar and the capacity of the ready pods as a mark.
func (s Scale) Row(p Point) string {
	column := func(v float64) int {
		return int(math.Round(math.Max(0, math.Min(1, v/s.MaxLoad)) * (width - 1)))
	}
	cells := []rune(strings.Repeat(" ", width))
	for i := range column(p.Load) {
		cells[i] = '▒'
	}
	cells[column(float64(p.Ready)*s.PodCapacity)] = '│'
	return fmt.Sprintf("%6s  load %5.0f  pods %2d of %2d  %s", p.After.Round(time.Second), p.Load, p.Ready, p.Desired, strings.TrimRight(string(cells), " "))
}

// Summary reports when pods and load rose, and how often the load exceeded the capacity of the ready pods.
func (s Scale) Summary(points []Point, risen func(load float64) bool) string {
	if len(points) == 0 {
		return "no samples"
	}
	podsRose, loadRose := time.Duration(-1), time.Duration(-1)
	under := 0
	for _, p := range points {
		if podsRose < 0 && p.Desired > points[0].Desired {
			podsRose = p.After
		}
		if loadRose < 0 && risen(p.Load) {
			loadRose = p.After
		}
		if p.Load > float64(p.Ready)*s.PodCapacity {
			under++
		}
	}
	var text string
	switch {
	case podsRose < 0:
		text = "the number of pods did not rise"
	case loadRose < 0:
		text = fmt.Sprintf("the pods rose after %s, the load did not rise", podsRose.Round(time.Second))
	case podsRose < loadRose:
		text = fmt.Sprintf("the pods rose after %s, the load after %s: %s ahead", podsRose.Round(time.Second), loadRose.Round(time.Second),
			(loadRose - podsRose).Round(time.Second))
	default:
		text = fmt.Sprintf("the pods rose after %s, the load after %s: too late", podsRose.Round(time.Second), loadRose.Round(time.Second))
	}
	return fmt.Sprintf("%s; in %d of %d samples the load exceeded the capacity of the ready pods", text, under, len(points))
}

// Size of an SVG chart in pixels.
const (
	pictureWidth, pictureHeight = 900, 360
	margin                      = 50
)

// SVG draws all samples: load as an area, desired and ready capacity as steps.
func (s Scale) SVG(w io.Writer, title string, points []Point) error {
	if len(points) == 0 {
		return nil
	}
	end, top := points[len(points)-1].After.Seconds(), s.MaxLoad
	for _, p := range points {
		top = math.Max(top, math.Max(p.Load, float64(max(p.Desired, p.Ready))*s.PodCapacity))
	}
	x := func(after time.Duration) float64 {
		return margin + (pictureWidth-2*margin)*after.Seconds()/math.Max(1, end)
	}
	y := func(v float64) float64 { return pictureHeight - margin - (pictureHeight-2*margin)*v/top }
	line := func(of func(Point) float64) string {
		var b strings.Builder
		for i, p := range points {
			if i > 0 {
				fmt.Fprintf(&b, "%.1f,%.1f ", x(p.After), y(of(points[i-1])))
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", x(p.After), y(of(p)))
		}
		return strings.TrimSpace(b.String())
	}
	load := line(func(p Point) float64 { return p.Load })
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="white"/>
<text x="%d" y="24" font-size="15">%s</text>
<polygon fill="#cfe3f5" points="%d,%.1f %s %.1f,%.1f"/>
<polyline fill="none" stroke="#3b7dbb" stroke-width="1.5" points="%s"/>
<polyline fill="none" stroke="#c0392b" stroke-dasharray="5 4" stroke-width="1.5" points="%s"/>
<polyline fill="none" stroke="#1e8449" stroke-width="2" points="%s"/>
<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="black"/>
<text x="%d" y="%d">load</text><text x="%d" y="%d" fill="#c0392b">capacity of desired pods</text>
<text x="%d" y="%d" fill="#1e8449">capacity of ready pods</text><text x="%d" y="%d">%s</text>
<text x="4" y="%.1f">%.0f</text>
</svg>
`, pictureWidth, pictureHeight, margin, html.EscapeString(title), margin, y(0), load, x(points[len(points)-1].After), y(0), load,
		line(func(p Point) float64 { return float64(p.Desired) * s.PodCapacity }), line(func(p Point) float64 { return float64(p.Ready) * s.PodCapacity }),
		margin, pictureWidth-margin, y(0), y(0), margin, pictureHeight-14, 2*margin, pictureHeight-14, 6*margin, pictureHeight-14,
		pictureWidth-2*margin, pictureHeight-14, points[len(points)-1].After.Round(time.Second), y(top)+4, top)
	if err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}
