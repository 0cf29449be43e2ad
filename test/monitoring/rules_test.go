// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring_test checks config/monitoring: alerts, recording rules and dashboards.
package monitoring_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// rule is an alert or a recording rule.
type rule struct {
	Alert       string            `json:"alert"`
	Record      string            `json:"record"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func readRules(t *testing.T) []rule {
	t.Helper()

	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}

	if err := yaml.UnmarshalStrict(readFile(t, "../../config/monitoring/rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}

	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}

	return all
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return content
}

// knownMetrics returns a function that reports whether Crane exports a metric, records it by a rule, or reads it from an exporter.
func knownMetrics(t *testing.T) func(string) bool {
	t.Helper()

	known := map[string]bool{"up": true}
	for _, match := range regexp.MustCompile("(?m)^\\| `(crane_\\w+)` \\| (\\w+)").FindAllStringSubmatch(string(readFile(t, "../../docs/reference/metrics.md")), -1) {
		known[match[1]] = true
		if match[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				known[match[1]+suffix] = true
			}
		}
	}

	for _, r := range readRules(t) {
		known[r.Record] = true
	}

	return func(name string) bool {
		return known[name] || regexp.MustCompile("^(kube|node|container|process|go)_").MatchString(name)
	}
}

// selectors returns the names of the metrics that an expression reads.
func selectors(t *testing.T, expression string) []string {
	t.Helper()

	expr, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Errorf("parsing %s: %v", expression, err)
		return nil
	}

	var names []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			names = append(names, selector.Name)
		}

		return nil
	})

	return names
}

// TestRules checks that rules are PromQL on metrics that exist, and that each alert has its texts.
func TestRules(t *testing.T) {
	known := knownMetrics(t)
	alerts := 0
	for _, r := range readRules(t) {
		names := selectors(t, r.Expr)
		if len(names) == 0 {
			t.Errorf("%s%s reads no metric, want one or more", r.Alert, r.Record)
		}

		for _, name := range names {
			if !known(name) {
				t.Errorf("%s%s: no metric %s, want it", r.Alert, r.Record, name)
			}
		}

		if r.Alert == "" {
			continue
		}

		alerts++
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.For == "" {
			t.Errorf("%s: labels %v, annotations %v, for %q, want a severity, duration, summary and description", r.Alert, r.Labels, r.Annotations, r.For)
		}
	}

	if alerts == 0 {
		t.Error("no alert, want one or more")
	}
}

// TestAlertsAreTested checks that alerts.yaml, which promtool runs, has for each alert a test in which it fires and one in which it does not.
func TestAlertsAreTested(t *testing.T) {
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				AlertName string           `json:"alertname"`
				ExpAlerts []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}

	if err := yaml.Unmarshal(readFile(t, "alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}

	fires := map[string]bool{}
	quiet := map[string]bool{}
	for _, group := range file.Tests {
		for _, test := range group.AlertRuleTest {
			if len(test.ExpAlerts) > 0 {
				fires[test.AlertName] = true
			} else {
				quiet[test.AlertName] = true
			}
		}
	}

	for _, r := range readRules(t) {
		if r.Alert != "" && (!fires[r.Alert] || !quiet[r.Alert]) {
			t.Errorf("%s: test in which it fires %v, in which it does not %v, want both", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
	}
}

// TestRunbooks checks that each alert links a section of its own, which has a command to run, and that no section is left over.
func TestRunbooks(t *testing.T) {
	const page = "docs/how-to/runbooks.md"
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(readFile(t, "../../"+page)), "\n## ") {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] = text
	}

	var alerts []string
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}

		alerts = append(alerts, r.Alert)
		if want := page + "#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		if !strings.Contains(sections[r.Alert], "\n    ") && !strings.Contains(sections[r.Alert], "```") {
			t.Errorf("%s: %s has no section with a command, want one", r.Alert, page)
		}
	}

	for title := range sections {
		if strings.HasPrefix(title, "Crane") && !slices.Contains(alerts, title) {
			t.Errorf("%s: no alert %s, want one", page, title)
		}
	}
}
