// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"

	"crane.io/crane/internal/scheduler/simulate/quality"
	"crane.io/crane/pkg/svg"
)

// Sizes in pixels: each scenario has a line of three panels.
const (
	panelWidth, panelHeight = 420, 300
	panelLeft, panelTop     = 120, 56
	panelRight, panelBottom = 30, 36
	plotWidth               = panelWidth - panelLeft - panelRight
	plotHeight              = panelHeight - panelTop - panelBottom
	panels                  = 3
)

// palette returns a color for each policy in turn: dark enough on white and distinguishable by the color-blind
// (Okabe and Ito).
func palette(i int) string {
	colors := [...]string{"#000000", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#7f7f7f", "#8a6d00", "#5b3a8e"}
	return colors[i%len(colors)]
}

// svg draws one line of panels for each scenario that was not skipped.
func (r *Report) svg() string {
	var scenarios []Scenario
	for _, s := range r.Scenarios {
		if s.Skipped == "" {
			scenarios = append(scenarios, s)
		}
	}

	m := svg.New(panels*panelWidth, max(1, len(scenarios))*panelHeight)
	for i, s := range scenarios {
		m.Group(svg.Point{Y: float64(i * panelHeight)}, func() {
			title := fmt.Sprintf("%s, metric delay %s: %d nodes, %d seeds", s.Name, s.Delay, s.Nodes, len(s.Seeds))
			m.Text(svg.Point{X: 12, Y: 18}, title, "font-weight", "bold")
			m.Group(svg.Point{}, func() {
				bars(m, s, "σ of node CPU utilization, points (mean, 95 %)", func(q quality.Summary) quality.Estimate {
					return quality.Estimate{Mean: 100 * q.Sigma.Mean, Interval: 100 * q.Sigma.Interval}
				})
			})

			m.Group(svg.Point{X: panelWidth}, func() {
				bars(m, s, "node-minutes above 80 % (mean, 95 %)", func(q quality.Summary) quality.Estimate { return q.Hot })
			})
			m.Group(svg.Point{X: 2 * panelWidth}, func() { courses(m, s) })
		})
	}

	return m.String()
}

// bars draws one bar for each policy with its interval.
func bars(m *svg.Image, s Scenario, title string, value func(quality.Summary) quality.Estimate) {
	highest := 1e-9
	for _, row := range s.Rows {
		e := value(row.Summary)
		highest = max(highest, e.Mean+e.Interval)
	}

	m.Text(svg.Point{X: panelLeft, Y: 42}, title, "fill", "#555555")
	barHeight := float64(plotHeight) / float64(max(1, len(s.Rows)))
	x := func(v float64) float64 { return panelLeft + plotWidth*max(0, v)/highest }
	for i, row := range s.Rows {
		e := value(row.Summary)
		y := panelTop + barHeight*float64(i)
		m.Text(svg.Point{X: panelLeft - 6, Y: y + barHeight*0.7}, row.Policy, "text-anchor", "end")
		m.Rect(svg.Point{X: panelLeft, Y: y + barHeight*0.15}, x(e.Mean)-panelLeft, barHeight*0.7, "fill", palette(i), "fill-opacity", "0.75")
		m.Line(svg.Point{X: x(e.Mean - e.Interval), Y: y + barHeight/2}, svg.Point{X: x(e.Mean + e.Interval), Y: y + barHeight/2}, "stroke", "#333333")
		m.Text(svg.Point{X: min(x(e.Mean+e.Interval)+4, panelWidth-28), Y: y + barHeight*0.7}, fmt.Sprintf("%.3g", e.Mean), "fill", "#333333")
	}
}

// courses draws sigma over time, one line for each policy.
func courses(m *svg.Image, s Scenario) {
	const right = float64(panelWidth - panelRight)
	highest := 1e-9 // Above 0, so that an empty chart has a scale.
	longest := 0
	for _, row := range s.Rows {
		longest = max(longest, len(row.Course))
		for _, v := range row.Course {
			highest = max(highest, v)
		}
	}

	y := func(v float64) float64 { return panelTop + plotHeight*(1-v/highest) }
	m.Text(svg.Point{X: panelLeft, Y: 42}, "σ over the measured minutes, points", "fill", "#555555")

	for tick := range 5 {
		v := highest * float64(tick) / 4
		m.Line(svg.Point{X: panelLeft, Y: y(v)}, svg.Point{X: right, Y: y(v)}, "stroke", "#dddddd")
		m.Text(svg.Point{X: panelLeft - 6, Y: y(v) + 4}, fmt.Sprintf("%.1f", 100*v), "text-anchor", "end")
	}

	for i, row := range s.Rows {
		points := make([]svg.Point, len(row.Course))
		for minute, v := range row.Course {
			points[minute] = svg.Point{X: panelLeft + plotWidth*float64(minute)/float64(max(1, longest-1)), Y: y(v)}
		}
		m.Polyline(points, "stroke", palette(i), "stroke-width", "1.5")
	}

	m.Text(svg.Point{X: right, Y: panelHeight - panelBottom + 16}, fmt.Sprintf("%d min", longest), "text-anchor", "end")
}
