// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/rightsize/requestbacktest"
)

// runBacktest runs `crane backtest rightsize` and returns its output and error.
func runBacktest(t *testing.T, args ...string) (out, warnings string, err error) {
	t.Helper()
	return execute(t, append([]string{"backtest", "rightsize"}, args...)...)
}

// writeSeries writes a series with a daily cycle, one sample every five minutes.
func writeSeries(t *testing.T, dir, name string, days int) string {
	t.Helper()

	var b strings.Builder
	b.WriteString("ts,value\n")

	for i := range days * 288 {
		fmt.Fprintf(&b, "%d,%.4f\n", 1772409600+300*i, 1-0.5*math.Cos(2*math.Pi*float64(i)/288))
	}

	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func TestBacktestRightsizeJSON(t *testing.T) {
	dir := t.TempDir()
	writeSeries(t, dir, "web.csv", 10)
	writeSeries(t, dir, "young.csv", 3)

	if err := os.WriteFile(filepath.Join(dir, "notes.csv"), []byte("a,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	out, warnings, err := runBacktest(t, "-o", "json", "--policy", "crane-default", "--policy", "vpa", dir)
	if err != nil {
		t.Fatal(err)
	}

	var report requestbacktest.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}

	if len(report.Series) != 2 || len(report.Mean) != 2 || report.Series[0].Name != "web" || report.Mean[1].Policy != "vpa" {
		t.Errorf("report = %+v, want the series web and the means of 2 policies, vpa second", report)
	}
	if !strings.Contains(out, `"oomDays": null`) {
		t.Error("oomDays of CPU is a number, want null")
	}

	for _, want := range []string{"notes.csv", "skipping series young: too short"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("stderr lacks %q:\n%s", want, warnings)
		}
	}
}

// TestBacktestRightsizeAllPolicies checks that every policy is replayed without --policy and that a score has the
// documented fields.
func TestBacktestRightsizeAllPolicies(t *testing.T) {
	out, _, err := runBacktest(t, "-o", "json", writeSeries(t, t.TempDir(), "web.csv", 9))
	if err != nil {
		t.Fatal(err)
	}

	var report map[string][]map[string]any
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}

	var names []string
	for i, s := range report["series"] {
		fields := slices.Sorted(maps.Keys(s))
		if !slices.Equal(fields, []string{"changes", "cost", "longestAbove", "minutesAbove", "name", "oomDays", "overrun", "policy", "slack", "violation"}) {
			t.Errorf("a score has the fields %v, want the documented ones", fields)
		}
		if report["mean"][i]["policy"] != s["policy"] {
			t.Errorf("mean %d: policy %v, want %v", i, report["mean"][i]["policy"], s["policy"])
		}

		names = append(names, fmt.Sprint(s["policy"]))
	}

	want := []string{
		"crane-default", "crane-latency-sensitive", "crane-batch", "crane-calibrated-constant", "gocrane", "vpa", "krr-p95",
		"krr-p99", "crane-calibrated", "crane-calibrated-adopted",
	}
	if !slices.Equal(names, want) || len(report) != 3 {
		t.Errorf("%v, want %v", names, want)
	}
}

func TestBacktestRightsizePolicyFile(t *testing.T) {
	dir := t.TempDir()
	series := writeSeries(t, dir, "web.csv", 10)

	file := filepath.Join(dir, "mine.yaml")
	policy := "name: mine\ncpu:\n  method: percentile\n  percentile: 0.9\n  margin: 0\n"
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}

	out, _, err := runBacktest(t, "--policy", file, series)
	if err != nil || !strings.Contains(out, "crane-mine") {
		t.Errorf("backtest with a policy file: %v, want a row of crane-mine in\n%s", err, out)
	}
	if err := os.WriteFile(file, []byte(policy+"  margn: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, _, err := runBacktest(t, "--policy", file, series); err == nil || !strings.Contains(err.Error(), "cpu.margn") {
		t.Errorf("a policy with an unknown field: error %v, want one that names cpu.margn", err)
	}
}

func TestBacktestRightsizeGenerated(t *testing.T) {
	out, _, err := runBacktest(t, "--resource", "memory", "--generated", "3", "--days", "9", "--policy", "krr-p95", "-o", "json")
	if err != nil || strings.Contains(out, `"oomDays": null`) {
		t.Errorf("backtest of memory: %v, want numbers of OOM days in\n%s", err, out)
	}
}

func TestBacktestRightsizeErrors(t *testing.T) {
	young := writeSeries(t, t.TempDir(), "young.csv", 2)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no series":      {nil, exitUsage, "want files or directories"},
		"unknown policy": {[]string{"--policy", "best", young}, exitUsage, "crane-default"},
		"unknown output": {[]string{"-o", "xml", young}, exitUsage, "xml"},
		"unknown unit":   {[]string{"--resource", "disk", young}, exitUsage, "disk"},
		"both":           {[]string{"--resource", "memory", "--generated", "1", young}, exitUsage, "mutually exclusive"},
		"too short":      {[]string{young}, exitNoResult, "nothing to score"},
		"no such file":   {[]string{filepath.Join(t.TempDir(), "none.csv")}, exitFailure, "none.csv"},
	} {
		_, _, err := runBacktest(t, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v lacks %q", name, err, c.want)
			continue
		}

		code := exitFailure
		var coded *exitError
		if errors.As(err, &coded) {
			code = coded.code
		}
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
	}
}

// TestBacktestTarget checks that a laxer target costs less, and that one which cannot be promised is refused.
func TestBacktestTarget(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.csv")
	var b strings.Builder
	b.WriteString("ts,value\n")

	for i := range 12 * 288 {
		v := 1.0
		if i%97 == 0 {
			v = 2
		}

		fmt.Fprintf(&b, "%d,%v\n", 1772409600+300*i, v)
	}

	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, policy := range []string{"crane-calibrated-constant", "crane-calibrated-adopted", "crane-calibrated"} {
		cost := map[string]float64{}
		for _, target := range []string{"0.0025", "0.02"} {
			out, _, err := runBacktest(t, "-o", "json", "--policy", policy, "--target", target, file)
			if err != nil {
				t.Fatal(err)
			}

			var report requestbacktest.Report
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatal(err)
			}

			cost[target] = report.Mean[0].Cost
		}

		if cost["0.02"] >= cost["0.0025"] {
			t.Errorf("%s: cost %v, want less for a looser target", policy, cost)
		}
	}

	if _, _, err := runBacktest(t, "--target", "0.001", file); err == nil || !strings.Contains(err.Error(), "--target") {
		t.Errorf("a target of 0.1 %%: error %v, want one that names --target", err)
	}
}
