// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strings"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

// htmlReplay is the replay of a recommendation as the page shows it.
type htmlReplay struct {
	// Days names the replayed days, LimitTitle the column about the limit.
	Days, LimitTitle string
	Outcomes         []htmlOutcome
	Chart            *htmlChart
	Curve            [][]string
	// Hint explains how to use a point of the curve as a policy.
	Hint string
}

// htmlOutcome is a row of the replay; Mark is its letter in the chart, Selected marks the policy of the
// recommendation.
type htmlOutcome struct {
	Mark     string
	Selected bool
	Cells    []string
}

// htmlChart plots a cost against the time above the request: a curve and marked points. Coordinates are pixels.
type htmlChart struct {
	chartFrame

	// Heading is a sentence above the chart, Description its text for screen readers, XTitle the title of the x axis.
	Heading, Description, XTitle string
	// TargetY is the position of the target; 0 for none.
	TargetY float64

	// Line is the points attribute of the SVG polyline.
	Line        string
	Dots, Marks []htmlMark
}

// chartFrame is the plot area of a chart with its axis ticks.
type chartFrame struct {
	Width, Height            int
	Left, Right, Top, Bottom float64
	XTicks, YTicks           []htmlMark
}

// htmlMark is a point or an axis tick.
type htmlMark struct {
	X, Y              float64
	LabelX, LabelY    float64
	Label, Tip, Class string
}

// Dimensions of the chart, in pixels.
const (
	replayChartWidth, replayChartHeight = 560, 260
	replayChartLeft, replayChartRight   = 64, 16
	replayChartTop, replayChartBottom   = 16, 44
)

// newHTMLReplay returns nil if no day was replayed.
func newHTMLReplay(r *rightsize.Replay, s resourceSize) *htmlReplay {
	if r == nil || r.Days == 0 {
		return nil
	}

	out := &htmlReplay{Days: fmt.Sprintf("Each of %s from %s to %s, computed from the preceding days.", units.FormatCount(r.Days, "day"), r.From, r.To), LimitTitle: "Days above limit"}
	if s.resource == metrics.CPU {
		out.LimitTitle = "Throttled"
		out.Hint = customPolicyHint
	}

	for i, o := range r.Outcomes {
		out.Outcomes = append(out.Outcomes, htmlOutcome{Mark: outcomeLetter(i), Selected: i == 0, Cells: s.outcomeCells(i, o)})
	}

	for _, p := range r.Curve {
		out.Curve = append(out.Curve, s.curveCells(p))
	}

	if len(r.Curve) > 0 {
		out.Chart = newReplayChart(r, s)
	}

	return out
}

// outcomeLetter returns the letter of an outcome in the chart.
func outcomeLetter(i int) string { return string(rune('A' + min(i, 'Z'-'A'))) }

// newReplayChart maps slack to x and minutes per day above the request to y.
func newReplayChart(r *rightsize.Replay, s resourceSize) *htmlChart {
	low, high := slackRange(r)
	c := newViolationChart("Slack against minutes per day above the request, for quantiles of the usage and for each policy",
		"slack: unused share of the request")

	x := func(slack float64) float64 { return c.x(slack, low, high) }
	var line []string
	for _, p := range r.Curve {
		m := htmlMark{X: x(float64(p.Slack)), Y: c.y(p.Violation)}
		m.Tip = fmt.Sprintf("%s: slack %s, %s min/day over, request %s", quantileText(p.Quantile), units.FormatPercent(p.Slack), minutesText(p.Violation), s.formatMeasured(p.Request))
		c.Dots = append(c.Dots, m)
		line = append(line, fmt.Sprintf("%g,%g", m.X, m.Y))
	}

	c.Line = strings.Join(line, " ")
	for i, o := range r.Outcomes {
		m := htmlMark{
			X:     x(float64(o.Slack)),
			Y:     c.y(o.Violation),
			Label: outcomeLetter(i),
			Class: "peer",
		}

		if i == 0 {
			m.Class = "selected"
		}

		m.Tip = fmt.Sprintf("%s: slack %s, %s min/day over, mean request %s", o.Policy, units.FormatPercent(o.Slack), minutesText(o.Violation), s.formatMeasured(o.Request))
		c.Marks = append(c.Marks, m)
	}

	// Labels of policies with about the same result would cover each other.
	spreadLabels(c.Marks)
	const maxTicks = 6

	step := max(1, math.Ceil((high-low)*10/maxTicks)) / 10
	for v := low; v <= high+1e-9; v += step {
		c.XTicks = append(c.XTicks, htmlMark{X: x(v), LabelX: x(v), Label: fmt.Sprintf("%.0f%%", math.Round(v*100)+0)})
	}

	return c
}

// newCalibrationChart maps the mean request of each factor to x and its minutes per day above the request to y; nil without a
// calibration.
func newCalibrationChart(calibration *calibrate.Calibration, s resourceSize) *htmlChart {
	if calibration == nil || len(calibration.Points) == 0 {
		return nil
	}

	c := newViolationChart("Mean request against minutes per day above the request, for each factor in the replay of the past days", "mean request")
	c.Heading = "Calibration: " + calibration.Summary() + "."
	c.TargetY = c.y(calibration.Target)

	// The axis spans the requests of all factors.
	low, high := calibration.Points[0].Request, calibration.Points[0].Request
	for _, p := range calibration.Points {
		low = min(low, p.Request)
		high = max(high, p.Request)
	}

	var line []string
	for _, p := range calibration.Points {
		m := htmlMark{X: c.x(p.Request, low, high), Y: c.y(p.Violation)}
		m.Tip = fmt.Sprintf("factor %.3g: %s min/day over, mean request %s", p.Multiplier, minutesText(p.Violation), s.formatMeasured(p.Request))
		line = append(line, fmt.Sprintf("%g,%g", m.X, m.Y))

		if p.Multiplier == calibration.Multiplier {
			m.Label, m.Class = "selected", "selected"
			c.Marks = append(c.Marks, m)
			continue
		}

		c.Dots = append(c.Dots, m)
	}

	c.Line = strings.Join(line, " ")
	spreadLabels(c.Marks)

	const ticks = 5
	for i := range ticks + 1 {
		v := low + (high-low)*float64(i)/ticks
		c.XTicks = append(c.XTicks, htmlMark{X: c.x(v, low, high), LabelX: c.x(v, low, high), Label: s.formatMeasured(v)})
	}

	return c
}

// newViolationChart returns a chart without points whose y axis is the minutes per day above the request.
func newViolationChart(description, xTitle string) *htmlChart {
	c := &htmlChart{Description: description, XTitle: xTitle, chartFrame: chartFrame{
		Width:  replayChartWidth,
		Height: replayChartHeight,
		Left:   replayChartLeft,
		Right:  replayChartWidth - replayChartRight,
		Top:    replayChartTop,
		Bottom: replayChartHeight - replayChartBottom,
	}}

	for _, minutes := range []float64{0, 1, 10, 60, 360, minutesPerDay} {
		c.YTicks = append(c.YTicks, htmlMark{Y: c.y(units.Ratio(minutes / minutesPerDay)), Label: fmt.Sprintf("%g", minutes)})
	}

	return c
}

// x maps a value from low to high, which may be equal.
func (c *htmlChart) x(v, low, high float64) float64 {
	if high <= low {
		return c.Left
	}

	return roundTenths(c.Left + (c.Right-c.Left)*(min(max(v, low), high)-low)/(high-low))
}

// y maps a share of the time above the request on a logarithmic scale, which separates small values.
func (c *htmlChart) y(share units.Ratio) float64 {
	return roundTenths(c.Bottom - (c.Bottom-c.Top)*math.Log1p(float64(share)*minutesPerDay)/math.Log1p(minutesPerDay))
}

// slackRange returns the range of the slack axis in tenths. Points below -100% are drawn at the border.
func slackRange(r *rightsize.Replay) (low, high float64) {
	low, high = 0, 0.1
	extend := func(slack units.Ratio) {
		low = min(low, math.Floor(float64(slack)*10)/10)
		high = max(high, math.Ceil(float64(slack)*10)/10)
	}

	for _, p := range r.Curve {
		extend(p.Slack)
	}

	for _, o := range r.Outcomes {
		extend(o.Slack)
	}

	return max(low, -1), high
}

// spreadLabels places the letters above their points, and stacks the letters of overlapping points.
func spreadLabels(marks []htmlMark) {
	const (
		above = 6
		near  = 9
		apart = 11
	)

	for i := range marks {
		m := &marks[i]
		m.LabelY = m.Y - above
		for j := 0; j < i; j++ {
			if math.Abs(m.X-marks[j].X) < near && math.Abs(m.LabelY-marks[j].LabelY) < apart {
				// Restart: the label may now overlap an earlier one.
				m.LabelY = marks[j].LabelY - apart
				j = -1
			}
		}
	}
}

func roundTenths(v float64) float64 { return math.Round(10*v) / 10 }
