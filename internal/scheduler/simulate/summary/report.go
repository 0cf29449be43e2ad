// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package summary prints the results of simulations as a table, JSON, Markdown or an SVG chart.
package summary

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"crane.io/crane/internal/scheduler/simulate/quality"
)

// Report is the result of one command.
type Report struct {
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is the result of one scenario with one delay of metrics.
type Scenario struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Skipped is why nothing was run; then all that follows is empty.
	Skipped string   `json:"skipped,omitempty"`
	Delay   string   `json:"metricDelay,omitempty"`
	Nodes   int      `json:"nodes,omitempty"`
	Seeds   []uint64 `json:"seeds,omitempty"`
	Rows    []Row    `json:"policies,omitempty"`
}

// Row is one policy.
type Row struct {
	Policy  string          `json:"policy"`
	Summary quality.Summary `json:"summary"`
	Runs    []quality.Run   `json:"runs"`
	// Course is sigma by minute, the mean over seeds, for charts.
	Course []float64 `json:"-"`
}

// Formats returns the formats of Write.
func Formats() []string { return []string{"table", "json", "markdown", "svg"} }

// Write writes the report in a format. An unknown one is an error.
func (r *Report) Write(w io.Writer, format string) error {
	var content string
	switch format {
	case "table":
		content = r.table(func(t table.Writer) string { return t.Render() }, heading)
	case "markdown":
		content = r.table(func(t table.Writer) string { return t.RenderMarkdown() }, markdownHeading)
	case "svg":
		content = r.svg()

	case "json":
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}

		content = string(data) + "\n"

	default:
		return fmt.Errorf("output %q: want one of %s", format, strings.Join(Formats(), ", "))
	}

	if _, err := io.WriteString(w, content); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}

	return nil
}

func heading(s Scenario) string {
	return fmt.Sprintf("%s, metric delay %s: %d nodes, %d seeds\n%s", s.Name, s.Delay, s.Nodes, len(s.Seeds), s.Description)
}

func markdownHeading(s Scenario) string {
	return fmt.Sprintf("### %s, metric delay %s\n\n%d nodes, %d seeds. %s\n", s.Name, s.Delay, s.Nodes, len(s.Seeds), s.Description)
}

// table renders one table for each scenario; skipped ones have their reason instead.
func (r *Report) table(render func(table.Writer) string, head func(Scenario) string) string {
	var b strings.Builder
	for i, s := range r.Scenarios {
		if i > 0 {
			b.WriteString("\n")
		}

		if s.Skipped != "" {
			fmt.Fprintf(&b, "%s: skipped: %s\n", s.Name, s.Skipped)
			continue
		}

		t := table.NewWriter()
		t.Style().Format.Header = text.FormatDefault
		t.AppendHeader(table.Row{
			"policy", "σ of CPU, points", "σ / default", "σ gap closed", "node-min > 80 %", "gap closed", "nodes in use",
			"unschedulable", "pod-min waited", "moves",
		})

		for _, row := range s.Rows {
			m := row.Summary
			t.AppendRow(table.Row{
				row.Policy, points(m.Sigma), number(m.SigmaRatio, 2), percent(m.SigmaClosed), number(m.Hot, 0), percent(m.HotClosed),
				percent(m.InUse), number(m.Unschedulable, 0), number(m.Waited, 0), number(m.Moves, 0),
			})
		}

		fmt.Fprintf(&b, "%s\n%s\n", head(s), render(t))
	}

	return b.String()
}

func points(e quality.Estimate) string {
	return number(quality.Estimate{Mean: 100 * e.Mean, Interval: 100 * e.Interval}, 2)
}

func percent(e quality.Estimate) string {
	return fmt.Sprintf("%.0f ± %.0f %%", 100*e.Mean, 100*e.Interval)
}

func number(e quality.Estimate, decimals int) string {
	return fmt.Sprintf("%.*f ± %.*f", decimals, e.Mean, decimals, e.Interval)
}

// NewScenario puts the runs of a scenario together. runs is by policy, in the order of policies, and within by seed. The
// policies called normal and oracle are what the others are compared with; where one is missing, so are the comparisons.
func NewScenario(name, description string, delay time.Duration, nodes int, seeds []uint64, policies []string, runs map[string][]quality.Run, normal, oracle string) Scenario {
	s := Scenario{
		Name:        name,
		Description: description,
		Delay:       delay.String(),
		Nodes:       nodes,
		Seeds:       seeds,
	}

	for _, p := range policies {
		s.Rows = append(s.Rows, Row{
			Policy:  p,
			Runs:    runs[p],
			Summary: quality.Summarize(runs[p], runs[normal], runs[oracle]),
			Course:  meanCourse(runs[p]),
		})
	}

	return s
}

func meanCourse(runs []quality.Run) []float64 {
	if len(runs) == 0 {
		return nil
	}

	n := len(slices.MinFunc(runs, func(a, b quality.Run) int { return len(a.Course) - len(b.Course) }).Course)
	mean := make([]float64, n)
	for _, r := range runs {
		for i := range mean {
			mean[i] += r.Course[i] / float64(len(runs))
		}
	}

	return mean
}
