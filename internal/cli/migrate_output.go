// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/internal/migrate"
)

// maxListedNames is the number of names in a line of the table; the JSON output has all.
const maxListedNames = 3

// renderMigrateCheck writes the report as text.
func renderMigrateCheck(w io.Writer, r *migrate.Report) error {
	columns := progressline.TerminalWidth(w)
	var b strings.Builder
	for _, line := range migrateSummary(r) {
		b.WriteString(wrapText("", line, columns))
	}

	if len(r.Items) > 0 {
		b.WriteString("\n" + formatMigrateGroups(r.Groups()) + "\n")
	}

	for _, f := range r.Findings {
		b.WriteString(wrapText(fmt.Sprintf("%-9s ", f.Severity), f.Reason+": "+f.Message, columns))
		for _, object := range firstNames(f.Objects) {
			b.WriteString(wrapText("          - ", object, columns))
		}
	}

	if len(r.Imports) > 0 {
		b.WriteString("\nOther projects:\n")
	}

	// Fields without a counterpart are named: they are lost by an import.
	for _, i := range r.Imports {
		line := i.Source + " " + i.Object + " -> nothing"
		if i.To != "" {
			line = i.Source + " " + i.Object + " -> " + i.To
		}
		if len(i.Unmapped) > 0 {
			line += "; without counterpart: " + strings.Join(i.Unmapped, ", ")
		}

		b.WriteString(wrapText("  ", line, columns))
	}

	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}

	return nil
}

// migrateSummary describes the installation.
func migrateSummary(r *migrate.Report) []string {
	lines := []string{"Kubernetes " + r.KubernetesVersion}
	if !r.Installed {
		return append(lines, "gocrane is not installed")
	}

	lines = append(lines, "gocrane in namespace "+strings.Join(r.Namespaces, ", ")+", installed by "+r.InstalledBy)
	for _, release := range r.Releases {
		lines = append(lines, fmt.Sprintf("Helm release %s/%s: chart %s %s (app %s), revision %d, %s", release.Namespace, release.Name, release.Chart, release.ChartVersion, release.AppVersion, release.Revision, release.Status))
	}

	for _, image := range r.Images {
		lines = append(lines, "image "+image)
	}

	counts := make([]string, 0, len(r.Counts))
	for _, fate := range migrate.Fates() {
		counts = append(counts, fmt.Sprintf("%d %s", r.Counts[fate], fate))
	}

	return append(lines, fmt.Sprintf("%d objects: %s", len(r.Items), strings.Join(counts, ", ")))
}

// firstNames returns some names, and how many more there are.
func firstNames(names []string) []string {
	if len(names) <= maxListedNames {
		return names
	}

	return append(append([]string{}, names[:maxListedNames]...), fmt.Sprintf("%d more", len(names)-maxListedNames))
}

func formatMigrateGroups(groups []migrate.Group) string {
	t := texttable.New("BECOMES", "COMPONENT", "KIND", "NUMBER", "NAMES", "NOTE")
	for _, g := range groups {
		t.AppendRow(table.Row{g.Fate, g.Component, g.Kind, len(g.Names), strings.Join(firstNames(g.Names), ", "), g.Note})
	}

	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 5, WidthMax: maxNoteWidth, WidthMaxEnforcer: text.WrapSoft}, {Number: 6, WidthMax: maxNoteWidth, WidthMaxEnforcer: text.WrapSoft},
	})

	return t.Render() + "\n"
}

// migrateHTML is the data of the page.
type migrateHTML struct {
	*migrate.Report

	Summary []string
	Rows    []migrate.Group
}

func migratePage(r *migrate.Report) migrateHTML {
	return migrateHTML{r, migrateSummary(r), r.Groups()}
}
