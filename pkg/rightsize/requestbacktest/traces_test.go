// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"math"
	"testing"

	"crane.io/crane/pkg/units"
	"crane.io/crane/test/families"
)

// readTraces reads the production traces, and skips the test where they are absent.
func readTraces(t *testing.T) []Named {
	t.Helper()

	var all []Named
	for _, s := range families.Traces().Read(t, 1) {
		all = append(all, Named(s))
	}

	return all
}

// means returns the mean score of each rule over the series.
func means(t *testing.T, all []Named, rules []Rule) map[string]Score {
	t.Helper()

	report, err := Run(all, rules, units.CPU)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]Score{}
	for _, s := range report.Mean {
		out[s.Policy] = s
	}

	return out
}

// TestHarnessReproducesPublishedBaselines proves that series, splits and scores are right: the figures were measured
// independently on the same series.
func TestHarnessReproducesPublishedBaselines(t *testing.T) {
	rules, err := Rules(units.CPU, "vpa", "gocrane", "krr-p95", "krr-p99")
	if err != nil {
		t.Fatal(err)
	}

	got := means(t, readTraces(t), rules)
	for name, want := range map[string]struct{ slack, violation, overrun float64 }{
		"vpa":     {0.421, 0.0779, 0.161},
		"gocrane": {0.628, 0.0214, 0.055},
		"krr-p95": {0.067, 0.0980, 0.152},
		"krr-p99": {0.545, 0.0387, 0.076},
	} {
		s := got[name]
		if math.Abs(s.Slack-want.slack) > 0.0015 || math.Abs(s.Violation-want.violation) > 0.0002 || math.Abs(s.Overrun-want.overrun) > 0.0015 {
			t.Errorf("%s: slack %.3f, violation %.2f %%, overrun %.3f; want %.3f, %.2f %%, %.3f",
				name, s.Slack, 100*s.Violation, s.Overrun, want.slack, 100*want.violation, want.overrun)
		}
	}
}

// TestPoliciesBeatBaselines compares in one run, without the series that jumps a hundredfold near its end: there a
// request far below the jump makes slack look good.
func TestPoliciesBeatBaselines(t *testing.T) {
	rules, err := Rules(units.CPU, "crane-default", "crane-latency-sensitive", "crane-batch", "gocrane", "vpa")
	if err != nil {
		t.Fatal(err)
	}

	var steady []Named
	for _, named := range readTraces(t) {
		if named.Name != "workload-6" {
			steady = append(steady, named)
		}
	}

	got := means(t, steady, rules)
	for name, s := range got {
		t.Logf("%-26s slack %.3f, violation %.2f %%, overrun %.4f, changes %.2f", name, s.Slack, 100*s.Violation, s.Overrun, s.Changes)
	}

	ours := got["crane-default"]
	gocrane := got["gocrane"]
	if ours.Violation >= gocrane.Violation || ours.Slack > gocrane.Slack-0.02 {
		t.Errorf("crane-default: slack %.3f, violation %.4f; want less violation than gocrane (%.4f) at slack %.3f or less",
			ours.Slack, ours.Violation, gocrane.Violation, gocrane.Slack-0.02)
	}

	safe := got["crane-latency-sensitive"]
	vpa := got["vpa"]
	if safe.Violation > vpa.Violation/10 || safe.Slack > 0.62 {
		t.Errorf("crane-latency-sensitive: slack %.3f, violation %.4f; want at most a tenth of vpa's %.4f at slack 0.62 or less",
			safe.Slack, safe.Violation, vpa.Violation)
	}
}
