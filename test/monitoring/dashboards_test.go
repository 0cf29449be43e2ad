// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring_test

import (
	"bytes"
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
			t.Errorf("%s has no definition", e.Name())
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
					t.Errorf("%s: two panels %q, or one without title", d.UID, p.Title)
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
		t.Errorf("%s: an unknown variable in %s", at, expression)
	}
	for _, name := range selectors(t, expression) {
		if !known(name) && name != "ALERTS" {
			t.Errorf("%s: no metric %s", at, name)
		}
	}
}

// TestSuccessors checks that the page of dashboards names panels that exist.
func TestSuccessors(t *testing.T) {
	titles := map[string]bool{}
	for _, d := range dashboards.All() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				titles[d.UID+" / "+p.Title] = true
			}
		}
	}
	rows := regexp.MustCompile("(?m)^\\| .+ \\| `([^`]+)` \\|$").FindAllStringSubmatch(string(readFile(t, "../../docs/reference/dashboards.md")), -1)
	for _, row := range rows {
		if !titles[row[1]] {
			t.Errorf("no panel %s", row[1])
		}
	}
	if len(rows) < 50 {
		t.Errorf("successors of %d panels only", len(rows))
	}
}
