// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/sizereport"
)

//go:embed output.html.tmpl
var templateText string

// htmlPage is the data of the page. html/template escapes it by context.
type htmlPage struct {
	Subtitle, Prices string
	// Sources lists the data sources if they are not the default ones.
	Sources []string
	Totals  []htmlTotal
	Header  []htmlCell
	Rows    []htmlRow
	// Footer holds the totals; nil without totals.
	Footer    *htmlRow
	Workloads []htmlWorkload
}

// htmlRow is a row of the table. The note has a line of its own below the cells, so that it does not compete with them for width.
type htmlRow struct {
	Cells []htmlCell
	Note  string
}

type htmlTotal struct{ Title, Now, New, Change string }

// htmlCell is a cell with its CSS class, the title of its column, which narrow screens show beside the text, and the ID of the explanation that
// it links to.
type htmlCell struct{ Text, Class, Label, Link string }

type htmlWorkload struct {
	jsonWorkload
	ID      string
	Title   string
	Money   string
	Details []htmlContainer
	// Open expands the details; they are collapsed on long pages.
	Open bool
}

// htmlContainer is a container with its resources and its saving.
type htmlContainer struct {
	Name, Role, Saving string
	Resources          []htmlResource
}

// renderHTML writes a self-contained page without external resources. Its one script filters the rows; the page's Content-Security-Policy
// allows that script by its hash and no other.
func renderHTML(w io.Writer, r *report) error {
	return executeTemplate(w, "recommend", htmlReport{r}.page())
}

// executeTemplate writes the page "recommend" or "migrate".
func executeTemplate(w io.Writer, name string, data any) error {
	templates, err := template.New("recommend").Funcs(template.FuncMap{
		"amount": htmlAmount, "percent": func(v float64) string { return fmt.Sprintf("%.0f%%", v*100) },
		"days": func(v float64) string { return fmt.Sprintf("%.1f", v) },
	}).Parse(templateText)
	if err != nil {
		return fmt.Errorf("parsing the templates: %w", err)
	}

	if err := templates.ExecuteTemplate(w, name, data); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}

	return nil
}

// htmlReport lays a report out as a page.
type htmlReport struct{ *report }

func (r htmlReport) page() htmlPage {
	s := rowReport(r).data()
	t := r.totals()
	page := htmlPage{Subtitle: r.Subtitle(), Sources: r.Sources.Lines()}
	if !r.FromFiles() {
		page.Totals = []htmlTotal{
			{"CPU requests", formatCores(t.cpuNow) + " cores", formatCores(t.cpuRecommended) + " cores", percentText(t.cpuNow, t.cpuRecommended)},
			{"Memory requests", formatGiB(t.memoryNow), formatGiB(t.memoryRecommended), percentText(t.memoryNow, t.memoryRecommended)},
		}
	}

	if r.Prices != nil {
		page.Prices = r.Prices.Description()
		_, all := r.savingsByNamespace()
		page.Totals = append(page.Totals, htmlTotal{Title: "Saving", New: savingCell(all.Saving) + " " + r.Prices.Book.Currency, Change: "a month"})
	}

	last := len(s.header) - 1 // the column of notes
	titles := cellTexts(s.header)
	cells := func(row []string) []htmlCell {
		out := make([]htmlCell, last)
		for i, text := range row[:last] {
			out[i].Text = text
			switch {
			case i < s.names:
			case s.header[i] == changeTitle && text != emptyCell && strings.HasPrefix(text, "-"):
				out[i].Class = "n less"
			case s.header[i] == changeTitle && strings.HasPrefix(text, "+"):
				out[i].Class = "n more"
			default:
				out[i].Class = "n"
			}
		}

		return out
	}

	labeled := func(row []string) htmlRow {
		out := htmlRow{Cells: cells(row), Note: row[last]}
		for i := range out.Cells {
			if out.Cells[i].Text != "" {
				out.Cells[i].Label = titles[i]
			}
		}

		return out
	}

	page.Header = cells(titles)
	for _, row := range s.rows {
		page.Rows = append(page.Rows, labeled(cellTexts(row)))
	}

	r.linkRows(page.Rows, max(0, s.names-2))
	if len(s.footer) > 0 {
		footer := labeled(cellTexts(s.footer))
		page.Footer = &footer
	}

	const maxExpanded = 3
	for i, w := range r.json().Workloads {
		view := htmlWorkload{
			jsonWorkload: w,
			ID:           explanationID(i),
			Title:        r.Items[i].Workload.Ref.String(),
			Open:         len(r.Items) <= maxExpanded,
		}

		if r.Prices != nil && savingCell(r.Items[i].Saving) != emptyCell {
			view.Money = savingCell(r.Items[i].Saving) + " " + r.Prices.Book.Currency + " a month"
		}

		for c := range w.Containers {
			view.Details = append(view.Details, r.container(r.Items[i], c, w.Containers[c]))
		}
		page.Workloads = append(page.Workloads, view)
	}

	return page
}

// linkRows links a cell of each container's row to the explanation of its workload. Groups have none.
func (r htmlReport) linkRows(rows []htmlRow, column int) {
	if r.groupBy != "" {
		return
	}

	next := 0
	for i, it := range r.Items {
		for range it.Plan.Containers {
			rows[next].Cells[column].Link = explanationID(i)
			next++
		}
	}
}

// explanationID returns the ID of the explanation of an item.
func explanationID(item int) string { return fmt.Sprintf("workload-%d", item+1) }

// htmlResource is a resource of a container with its name.
type htmlResource struct {
	Name string
	*jsonResource
	Lines    []string
	Findings []string
	// Groups is the recommendation per node group, for a DaemonSet on heterogeneous nodes.
	Groups []string
	// Policy and Use are sentences; ReplayView is nil without a replay.
	Policy, Use string
	ReplayView  *htmlReplay
	// CalibrationChart is nil unless the policy is calibrated.
	CalibrationChart *htmlChart
	// NoReplayYet is set if a replay was requested and the history is too short for one.
	NoReplayYet bool
}

func (r htmlReport) container(it sizereport.Item, i int, c jsonContainer) htmlContainer {
	out := htmlContainer{Name: c.Name, Role: c.Role}
	if i < len(it.Savings) {
		out.Saving = containerSaving(r.report, it, i)
	}

	for _, view := range []htmlResource{{Name: "CPU", jsonResource: c.CPU}, {Name: "Memory", jsonResource: c.Memory}} {
		if view.jsonResource == nil {
			continue
		}

		for _, s := range view.Reasons {
			view.Lines = append(view.Lines, s.Text)
		}

		for _, f := range view.Flags {
			view.Findings = append(view.Findings, string(f.Code)+": "+f.Detail)
		}

		resource := metrics.UsageKind(strings.ToLower(view.Name))
		s := newResourceSize(it.Plan.Containers[i], resource)
		view.Use = useText(s, it.Usage[i].For(resource))
		view.Policy = r.policyText(s)
		view.Groups = r.nodeGroupLines(it, i, s.resource)
		view.ReplayView = newHTMLReplay(view.Replay, s)
		view.CalibrationChart = newCalibrationChart(view.Calibration, s)
		view.NoReplayYet = r.WithReplays && view.ReplayView == nil
		out.Resources = append(out.Resources, view)
	}

	return out
}

func htmlAmount(a *jsonAmount) string {
	if a == nil {
		return emptyCell
	}

	return a.Quantity
}
