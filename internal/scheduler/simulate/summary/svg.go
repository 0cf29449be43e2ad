// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"html"
	"math"
	"strings"

	"crane.io/crane/internal/scheduler/simulate/quality"
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

// palette returns a colour for each policy in turn: dark enough on white and distinguishable by the colour-blind
// (Okabe and Ito).
func palette(i int) string {
	colours := [...]string{"#000000", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#7f7f7f", "#8a6d00", "#5b3a8e"}
	return colours[i%len(colours)]
}

func (r *Report) svg() string {
	var shown []Scenario
	for _, s := range r.Scenarios {
		if s.Skipped == "" {
			shown = append(shown, s)
		}
	}
	width, height := panels*panelWidth, max(1, len(shown))*panelHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	for i, s := range shown {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", i*panelHeight)
		title := fmt.Sprintf("%s, metric delay %s: %d nodes, %d seeds", s.Name, s.Delay, s.Nodes, len(s.Seeds))
		fmt.Fprintf(&b, `<text x="12" y="18" font-weight="bold">%s</text>`+"\n", html.EscapeString(title))
		bars(&b, s, 0, "σ of node CPU utilisation, points (mean, 95 %)", func(m quality.Summary) quality.Estimate {
			return quality.Estimate{Mean: 100 * m.Sigma.Mean, Interval: 100 * m.Sigma.Interval}
		})
		bars(&b, s, 1, "node-minutes above 80 % (mean, 95 %)", func(m quality.Summary) quality.Estimate { return m.Hot })
		courses(&b, s, 2)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// bars draws one bar for each policy with its interval.
func bars(b *strings.Builder, s Scenario, panel int, title string, of func(quality.Summary) quality.Estimate) {
	most := 0.0
	for _, row := range s.Rows {
		e := of(row.Summary)
		most = max(most, e.Mean+e.Interval)
	}
	most = max(most, 1e-9)
	fmt.Fprintf(b, `<g transform="translate(%d 0)"><text x="%d" y="42" fill="#555555">%s</text>`+"\n", panel*panelWidth, panelLeft, html.EscapeString(title))
	each := float64(plotHeight) / float64(max(1, len(s.Rows)))
	for i, row := range s.Rows {
		e := of(row.Summary)
		y, x := panelTop+each*float64(i), func(v float64) float64 { return panelLeft + plotWidth*max(0, v)/most }
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`, panelLeft-6, y+each*0.7, html.EscapeString(row.Policy))
		fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="0.75"/>`, panelLeft, y+each*0.15, x(e.Mean)-panelLeft, each*0.7, palette(i))
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#333333"/>`, x(e.Mean-e.Interval), x(e.Mean+e.Interval), y+each/2, y+each/2)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="#333333">%.3g</text>`+"\n", min(x(e.Mean+e.Interval)+4, panelWidth-28), y+each*0.7, e.Mean)
	}
	b.WriteString("</g>\n")
}

// courses draws sigma over time, one line for each policy.
func courses(b *strings.Builder, s Scenario, panel int) {
	most, longest := 1e-9, 0
	for _, row := range s.Rows {
		longest = max(longest, len(row.Course))
		for _, v := range row.Course {
			most = max(most, v)
		}
	}
	fmt.Fprintf(b, `<g transform="translate(%d 0)"><text x="%d" y="42" fill="#555555">σ over the measured minutes, points</text>`+"\n", panel*panelWidth, panelLeft)
	for tick := range 5 {
		v := most * float64(tick) / 4
		y := panelTop + plotHeight*(1-v/most)
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%.1f</text>`+"\n",
			panelLeft, panelWidth-panelRight, y, y, panelLeft-6, y+4, 100*v)
	}
	for i, row := range s.Rows {
		var points strings.Builder
		for m, v := range row.Course {
			fmt.Fprintf(&points, "%.1f,%.1f ", panelLeft+plotWidth*float64(m)/math.Max(1, float64(longest-1)), panelTop+plotHeight*(1-v/most))
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.TrimSpace(points.String()), palette(i))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%d min</text></g>`+"\n", panelWidth-panelRight, panelHeight-panelBottom+16, longest)
}
