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
)

//go:embed recommend.html.tmpl
var recommendPage string

// htmlPage is what the page shows. html/template escapes all of it by its place.
type htmlPage struct {
	Subtitle, Prices string
	// Sources say what the page rests on where that is worth a word.
	Sources   []string
	Totals    []htmlTotal
	Header    []htmlCell
	Rows      [][]htmlCell
	Footer    []htmlCell
	Workloads []htmlWorkload
}

type htmlTotal struct{ Title, Now, New, Change string }

// htmlCell is a cell and the class that it is drawn by.
type htmlCell struct{ Text, Class string }

type htmlWorkload struct {
	jsonWorkload
	Title string
	Money string
	Shown []htmlContainer
	// Open shows the details at once; long pages are closed.
	Open bool
}

// htmlContainer is a container with its resources and what it saves.
type htmlContainer struct {
	Name, Role, Saving string
	Resources          []htmlResource
}

// renderHTML writes one page that needs nothing else: no script, no font, no picture from anywhere.
func renderHTML(w io.Writer, r *report) error {
	page, err := template.New("recommend").Funcs(template.FuncMap{
		"amount": htmlAmount, "percent": func(v float64) string { return fmt.Sprintf("%.0f%%", v*100) },
		"days": func(v float64) string { return fmt.Sprintf("%.1f", v) },
	}).Parse(recommendPage)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	if err := page.Execute(w, r.html()); err != nil {
		return fmt.Errorf("writing HTML: %w", err)
	}
	return nil
}

func (r *report) html() htmlPage {
	s, t := r.sheet(), r.totals()
	page := htmlPage{Subtitle: r.subtitle(), Sources: r.sources.lines()}
	if !r.fromFiles() {
		page.Totals = []htmlTotal{
			{"CPU requests", formatCores(t.cpuNow) + " cores", formatCores(t.cpuRecommended) + " cores", percentText(t.cpuNow, t.cpuRecommended)},
			{"Memory requests", formatGiB(t.memoryNow), formatGiB(t.memoryRecommended), percentText(t.memoryNow, t.memoryRecommended)},
		}
	}
	if r.prices != nil {
		page.Prices = r.prices.sentence()
		_, all := r.savingsByNamespace()
		page.Totals = append(page.Totals, htmlTotal{Title: "Saving", New: savingCell(all.Saving) + " " + r.prices.book.Currency, Change: "a month"})
	}
	cells := func(row []string) []htmlCell {
		out := make([]htmlCell, len(row))
		for i, text := range row {
			out[i].Text = text
			switch {
			case i < s.names || i == len(row)-1:
			case s.header[i] == changeTitle && text != nothing && strings.HasPrefix(text, "-"):
				out[i].Class = "n less"
			case s.header[i] == changeTitle && strings.HasPrefix(text, "+"):
				out[i].Class = "n more"
			default:
				out[i].Class = "n"
			}
		}
		return out
	}
	page.Header, page.Footer = cells(texts(s.header)), cells(texts(s.footer))
	for _, row := range s.rows {
		page.Rows = append(page.Rows, cells(texts(row)))
	}
	const few = 3
	for i, w := range r.json().Workloads {
		one := htmlWorkload{jsonWorkload: w, Title: r.items[i].workload.Ref.String(), Open: len(r.items) <= few}
		if r.prices != nil && savingCell(r.items[i].saving) != nothing {
			one.Money = savingCell(r.items[i].saving) + " " + r.prices.book.Currency + " a month"
		}
		for c := range w.Containers {
			one.Shown = append(one.Shown, r.htmlContainer(r.items[i], c, w.Containers[c]))
		}
		page.Workloads = append(page.Workloads, one)
	}
	return page
}

// htmlResource is one resource of a container with its name.
type htmlResource struct {
	Name string
	*jsonResource
	Lines []string
	Found []string
	// Groups say what each group of nodes needs, for a DaemonSet on unlike nodes.
	Groups []string
	// Policy and Use are sentences; Evidence is nil where it was not asked for or there is none yet.
	Policy, Use string
	Proof       *htmlReplay
	// Young tells that a replay was asked for and there is no day yet to hold it against.
	Young bool
}

func (r *report) htmlContainer(it item, i int, c jsonContainer) htmlContainer {
	out := htmlContainer{Name: c.Name, Role: c.Role}
	if i < len(it.savings) {
		out.Saving = containerSaving(r, it, i)
	}
	for _, one := range []htmlResource{{Name: "CPU", jsonResource: c.CPU}, {Name: "Memory", jsonResource: c.Memory}} {
		if one.jsonResource == nil {
			continue
		}
		for _, s := range one.Reasons {
			one.Lines = append(one.Lines, s.Text)
		}
		for _, f := range one.Flags {
			one.Found = append(one.Found, string(f.Code)+": "+f.Detail)
		}
		s, used := sizeOf(it.plan.Containers[i], metrics.CPU), it.use[i].cpu
		if one.Name == "Memory" {
			s, used = sizeOf(it.plan.Containers[i], metrics.Memory), it.use[i].memory
		}
		one.Use, one.Policy = useText(s, used), r.policyText(s)
		one.Groups = nodeGroupLines(it.plan.Containers[i], s.resource)
		one.Proof = htmlReplayOf(one.Replay, s.resource)
		one.Young = r.replays && one.Proof == nil
		out.Resources = append(out.Resources, one)
	}
	return out
}

func htmlAmount(a *jsonAmount) string {
	if a == nil {
		return nothing
	}
	return a.Quantity
}
