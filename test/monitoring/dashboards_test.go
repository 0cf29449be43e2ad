// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"crane.io/crane/test/monitoring/dashboards"
)

const dashboardDir = "../../config/monitoring/dashboards"

// TestGenerated checks that the committed dashboards are those of the definitions; with CRANE_UPDATE_DOCS it writes them.
func TestGenerated(t *testing.T) {
	want := map[string]bool{}
	for _, d := range dashboards.All() {
		content, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}

		path := filepath.Join(dashboardDir, d.UID+".json")
		want[d.UID+".json"] = true

		if os.Getenv("CRANE_UPDATE_DOCS") != "" {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		if committed, err := os.ReadFile(path); err != nil || !bytes.Equal(committed, content) {
			t.Errorf("%s is not current (%v): run make generate", path, err)
		}
	}

	entries, err := os.ReadDir(dashboardDir)
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		if !want[e.Name()] {
			t.Errorf("%s has no definition, want one", e.Name())
		}
	}
}

// TestDashboards checks that every expression is PromQL on metrics that exist, and that titles are unique in a dashboard.
func TestDashboards(t *testing.T) {
	known := knownMetrics(t)
	panels := 0
	for _, d := range dashboards.All() {
		titles := map[string]bool{}
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				panels++
				if titles[p.Title] || p.Title == "" {
					t.Errorf("%s: panel %q, want one with a title of its own", d.UID, p.Title)
				}

				titles[p.Title] = true
				for _, q := range p.Queries {
					checkExpression(t, known, d.UID+": "+p.Title, dashboards.Expand(q.Expr))
				}
			}
		}

		for _, v := range d.Variables {
			if v.Query != "" {
				checkExpression(t, known, d.UID+": $"+v.Name, dashboards.Expand(v.Query))
			}
		}
	}

	t.Logf("%d dashboards, %d panels", len(dashboards.All()), panels)
}

func checkExpression(t *testing.T, known func(string) bool, at, expression string) {
	t.Helper()

	if strings.Contains(regexp.MustCompile(`"\$1"`).ReplaceAllString(expression, ""), "$") {
		t.Errorf("%s: an unknown variable in %s, want known ones", at, expression)
	}

	for _, name := range selectors(t, expression) {
		if !known(name) && name != "ALERTS" {
			t.Errorf("%s: no metric %s, want it", at, name)
		}
	}
}

// gocranePanels has the number of panels of each of gocrane's dashboards.
var gocranePanels = map[string]int{
	"Cluster Cost & Utilization Overview": 10, "Container and Node Analysis V1": 14, "Costs by Dimension": 11, "Namespace Costs": 4, "Node Analysis": 7,
	"Workload Insight": 4, "Workload Utilization and Recommendation": 6,
}

// TestSuccessors checks that the page of dashboards names, for each panel of each of gocrane's dashboards, a panel that exists.
func TestSuccessors(t *testing.T) {
	titles := map[string]bool{}
	for _, d := range dashboards.All() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				titles[d.UID+" / "+p.Title] = true
			}
		}
	}

	sections := map[string]int{}
	row := regexp.MustCompile("(?m)^\\| .+ \\| `([^`]+ / [^`]+)` \\|$")
	for part := range strings.SplitSeq(string(readFile(t, "../../docs/reference/dashboards.md")), "\n### ") {
		title, text, _ := strings.Cut(part, "\n")
		for _, match := range row.FindAllStringSubmatch(text, -1) {
			sections[title]++
			if !titles[match[1]] {
				t.Errorf("%s: no panel %s, want one", title, match[1])
			}
		}
	}

	if !maps.Equal(sections, gocranePanels) {
		t.Errorf("successors by dashboard: %v, want %v", sections, gocranePanels)
	}
}
