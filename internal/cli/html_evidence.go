// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strings"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// htmlReplay is what a way of sizing would have done, as the page shows it.
type htmlReplay struct {
	// Days says which they were, Last is the title of the column about the limit.
	Days, Last string
	Outcomes   []htmlOutcome
	Chart      *htmlChart
	Curve      [][]string
	// Hint says how to take a point of the curve.
	Hint string
}

// htmlOutcome is a line of the replay; Mark is its letter in the chart.
type htmlOutcome struct {
	Mark  string
	Ours  bool
	Cells []string
}

// htmlChart is the curve of slack against time over the request, with each outcome as a point. Coordinates are pixels.
type htmlChart struct {
	Width, Height            int
	Left, Right, Top, Bottom float64
	// Line are the points of the curve, as SVG wants them.
	Line           string
	Dots, Marks    []htmlMark
	XTicks, YTicks []htmlMark
}

// htmlMark is a point, or a tick of an axis.
type htmlMark struct {
	X, Y, LabelY      float64
	Label, Tip, Class string
}

// Sizes of the chart, in pixels.
const (
	proofWidth, proofHeight = 560, 260
	proofLeft, proofRight   = 64, 16
	proofTop, proofBottom   = 16, 44
)

// htmlReplayOf is nil where there was no day to hold anything against.
func htmlReplayOf(r *rightsize.Replay, of metrics.Resource) *htmlReplay {
	if r == nil || r.Days == 0 {
		return nil
	}
	out := &htmlReplay{Days: fmt.Sprintf("Each of %s from %s to %s, decided from the days before it.", plural(r.Days, "day"), r.From, r.To), Last: "Days above limit"}
	if of == metrics.CPU {
		out.Last, out.Hint = "Throttled", takePoint
	}
	s := size{resource: of}
	for i, o := range r.Outcomes {
		limited := nothing
		switch {
		case o.OOMDays != nil:
			limited = fmt.Sprint(*o.OOMDays)
		case o.Throttled != nil:
			limited = shareText(*o.Throttled)
		}
		out.Outcomes = append(out.Outcomes, htmlOutcome{Mark: letter(i), Ours: i == 0, Cells: []string{
			o.Policy, shareText(o.Slack), minutesText(o.Violation), limited, fmt.Sprintf("%.2f", o.Changes), s.about(o.Request),
		}})
	}
	for _, p := range r.Curve {
		out.Curve = append(out.Curve, []string{quantileText(p.Quantile), shareText(p.Slack), minutesText(p.Violation), s.about(p.Request)})
	}
	if len(r.Curve) > 0 {
		out.Chart = newChart(r, s)
	}
	return out
}

// letter names an outcome in the chart.
func letter(i int) string { return string(rune('A' + min(i, 'Z'-'A'))) }

// newChart places slack along x, and minutes a day over the request along y, on a scale that keeps the few apart: 0, 1,
// 10 and 100 minutes are about as far from each other.
func newChart(r *rightsize.Replay, s size) *htmlChart {
	const worst = minutesPerDay
	low, high := slackRange(r)
	c := &htmlChart{
		Width: proofWidth, Height: proofHeight, Left: proofLeft, Right: proofWidth - proofRight, Top: proofTop, Bottom: proofHeight - proofBottom,
	}
	x := func(slack float64) float64 {
		return math.Round(10*(c.Left+(c.Right-c.Left)*(min(max(slack, low), high)-low)/(high-low))) / 10
	}
	y := func(minutes float64) float64 {
		return math.Round(10*(c.Bottom-(c.Bottom-c.Top)*math.Log1p(minutes)/math.Log1p(worst))) / 10
	}
	var line []string
	for _, p := range r.Curve {
		m := htmlMark{X: x(float64(p.Slack)), Y: y(float64(p.Violation) * worst)}
		m.Tip = fmt.Sprintf("%s: slack %s, %s min/day over, request %s", quantileText(p.Quantile), shareText(p.Slack), minutesText(p.Violation), s.about(p.Request))
		c.Dots = append(c.Dots, m)
		line = append(line, fmt.Sprintf("%g,%g", m.X, m.Y))
	}
	c.Line = strings.Join(line, " ")
	for i, o := range r.Outcomes {
		m := htmlMark{X: x(float64(o.Slack)), Y: y(float64(o.Violation) * worst), Label: letter(i), Class: "peer"}
		if i == 0 {
			m.Class = "ours"
		}
		m.Tip = fmt.Sprintf("%s: slack %s, %s min/day over, mean request %s", o.Policy, shareText(o.Slack), minutesText(o.Violation), s.about(o.Request))
		c.Marks = append(c.Marks, m)
	}
	spread(c.Marks)
	const few = 6
	step := max(1, math.Ceil((high-low)*10/few)) / 10
	for v := low; v <= high+1e-9; v += step {
		c.XTicks = append(c.XTicks, htmlMark{X: x(v), Label: fmt.Sprintf("%.0f%%", math.Round(v*100)+0)})
	}
	for _, minutes := range []float64{0, 1, 10, 60, 360, worst} {
		c.YTicks = append(c.YTicks, htmlMark{Y: y(minutes), Label: fmt.Sprintf("%g", minutes)})
	}
	return c
}

// slackRange is what the axis of slack covers, in tenths. A point further left than -100 % is drawn at the border.
func slackRange(r *rightsize.Replay) (low, high float64) {
	low, high = 0, 0.1
	see := func(slack series.Ratio) {
		low, high = min(low, math.Floor(float64(slack)*10)/10), max(high, math.Ceil(float64(slack)*10)/10)
	}
	for _, p := range r.Curve {
		see(p.Slack)
	}
	for _, o := range r.Outcomes {
		see(o.Slack)
	}
	return max(low, -1), high
}

// spread puts the letters above their points, and where points lie on each other above one another.
func spread(marks []htmlMark) {
	const above, near, apart = 6, 9, 11
	for i := range marks {
		m := &marks[i]
		m.LabelY = m.Y - above
		for j := 0; j < i; j++ {
			if math.Abs(m.X-marks[j].X) < near && math.Abs(m.LabelY-marks[j].LabelY) < apart {
				m.LabelY, j = marks[j].LabelY-apart, -1 // Anew: it may now lie on an earlier one.
			}
		}
	}
}
