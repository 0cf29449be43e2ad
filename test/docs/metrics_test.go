// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// metricsPage renders the metrics of Crane's binaries, grouped by the binary that exports them.
func metricsPage(t *testing.T) string {
	t.Helper()

	found, unresolved := scanMetrics(t, root)
	for _, at := range unresolved {
		t.Errorf("%s: the name, labels or help of this metric cannot be read; use constants, want constants, so that they can be read", at)
	}

	var b strings.Builder
	b.WriteString("# Metrics\n\nLook up any metric that a binary of Crane exports on `/metrics`: its type, labels and meaning. " + generatedBy + `

The metrics API ` + "(`external.metrics.k8s.io`)" + ` of [metric-adapter](metric-adapter.md) also serves ` + "`crane_autoscaling_prediction` and\n`crane_autoscaling_cron`" + `.
Names that start with ` + "`crane_craneAgent_`" + ` are those of gocrane.
`)

	for _, binary := range []string{"craned", "crane-agent", "metric-adapter", "crane-scheduler"} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | description |\n| --- | --- | --- | --- |\n", binary)
		n := 0
		for _, m := range found {
			if !slices.Contains(binariesOf(m.dir), binary) {
				continue
			}

			n++
			var labels []string
			for _, l := range m.labels {
				labels = append(labels, code(l))
			}

			if strings.TrimSpace(m.help) == "" {
				t.Errorf("%s has no help, want a help text", m.name)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(m.name), m.kind, strings.Join(labels, ", "), cell(m.help))
		}

		if n == 0 {
			t.Errorf("%s has no metrics, want at least one", binary)
		}
	}

	return b.String()
}

// binariesOf returns the binaries that export the metrics of a package.
func binariesOf(dir string) []string {
	switch {
	case strings.HasPrefix(dir, "internal/agent"):
		return []string{"crane-agent"}
	case strings.HasPrefix(dir, "internal/scheduler"):
		return []string{"crane-scheduler"}
	case strings.HasPrefix(dir, "internal/metricadapter"):
		return []string{"metric-adapter"}

	case strings.HasSuffix(dir, "/nodeloadpolicy"), strings.HasSuffix(dir, "/policyfile"):
		return []string{"craned", "crane-scheduler"}
	case strings.HasSuffix(dir, "/certificates"):
		return []string{"craned", "metric-adapter"}
	case strings.HasSuffix(dir, "/seriesguard"):
		return []string{"craned", "crane-agent", "metric-adapter"}
	}

	return []string{"craned"}
}

// TestScanMetrics shows which forms are understood, and that a name which cannot be read is reported.
func TestScanMetrics(t *testing.T) {
	found, unresolved := scanMetrics(t, "testdata/metrics")
	var got []string
	for _, m := range found {
		got = append(got, fmt.Sprintf("%s %s %v %s", m.name, m.kind, m.labels, m.help))
	}

	want := []string{
		"crane_a_total counter [x y] Plain.",
		"crane_b gauge [] By a wrapper.",
		"crane_c_d_seconds histogram [] By parts.",
		"crane_e_total counter [x] By a closure.",
		"crane_f gauge [x z] Appended labels.",
	}

	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(unresolved) != 1 || !strings.Contains(unresolved[0], "metrics.go") {
		t.Errorf("unresolved: %v, want one, in metrics.go", unresolved)
	}
}
