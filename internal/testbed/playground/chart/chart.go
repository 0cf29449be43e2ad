// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart draws load and pod capacity over time: a line of text per sample and an SVG chart of all samples.
package chart

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/svg"
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

	// The first rises are compared: a forecast scales before the load, a reaction after it.
	podsRose := time.Duration(-1)

	loadRose := time.Duration(-1)
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

	// The axes fit all values: a load above MaxLoad is drawn as well.
	end := points[len(points)-1].After.Seconds()

	top := s.MaxLoad
	for _, p := range points {
		top = math.Max(top, math.Max(p.Load, float64(max(p.Desired, p.Ready))*s.PodCapacity))
	}

	x := func(after time.Duration) float64 {
		return margin + (pictureWidth-2*margin)*after.Seconds()/math.Max(1, end)
	}
	y := func(v float64) float64 { return pictureHeight - margin - (pictureHeight-2*margin)*v/top }

	line := func(value func(Point) float64) []svg.Point {
		var steps []svg.Point
		for i, p := range points {
			// A step keeps its previous value until the next sample.
			if i > 0 {
				steps = append(steps, svg.Point{X: x(p.After), Y: y(value(points[i-1]))})
			}

			steps = append(steps, svg.Point{X: x(p.After), Y: y(value(p))})
		}

		return steps
	}

	right := float64(pictureWidth - margin)
	bottom := float64(pictureHeight - 14)
	load := line(func(p Point) float64 { return p.Load })

	m := svg.New(pictureWidth, pictureHeight)
	m.Text(svg.Point{X: margin, Y: 24}, title, "font-size", "15")
	m.Polygon(slices.Concat([]svg.Point{{X: margin, Y: y(0)}}, load, []svg.Point{{X: right, Y: y(0)}}), "fill", "#cfe3f5")
	m.Polyline(load, "stroke", "#3b7dbb", "stroke-width", "1.5")
	m.Polyline(line(func(p Point) float64 { return float64(p.Desired) * s.PodCapacity }), "stroke", "#c0392b", "stroke-dasharray", "5 4", "stroke-width", "1.5")
	m.Polyline(line(func(p Point) float64 { return float64(p.Ready) * s.PodCapacity }), "stroke", "#1e8449", "stroke-width", "2")

	m.Line(svg.Point{X: margin, Y: y(0)}, svg.Point{X: right, Y: y(0)}, "stroke", "black")
	m.Text(svg.Point{X: margin, Y: bottom}, "load")
	m.Text(svg.Point{X: 2 * margin, Y: bottom}, "capacity of desired pods", "fill", "#c0392b")
	m.Text(svg.Point{X: 6 * margin, Y: bottom}, "capacity of ready pods", "fill", "#1e8449")
	m.Text(svg.Point{X: right - margin, Y: bottom}, points[len(points)-1].After.Round(time.Second).String())
	m.Text(svg.Point{X: 4, Y: y(top) + 4}, fmt.Sprintf("%.0f", top))

	if _, err := m.WriteTo(w); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}

	return nil
}
