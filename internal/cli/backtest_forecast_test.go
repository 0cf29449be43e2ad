// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

// runBacktestForecast runs `crane backtest forecast` and returns its output and error.
func runBacktestForecast(t *testing.T, args ...string) (out, warnings string, err error) {
	t.Helper()
	return execute(t, append([]string{"backtest", "forecast"}, args...)...)
}

func TestBacktestForecastJSON(t *testing.T) {
	dir := t.TempDir()
	writeSeries(t, dir, "web.csv", 10)
	writeSeries(t, dir, "young.csv", 3)

	out, warnings, err := runBacktestForecast(t, "-o", "json", dir)
	if err != nil {
		t.Fatal(err)
	}

	var report struct {
		Series, Mean []map[string]any
	}

	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}

	want := []string{"auto", "seasonal-naive", "seasonal-naive-week", "plain", "gocrane-dsp"}
	if len(report.Series) != len(want) || len(report.Mean) != len(want) {
		t.Fatalf("%d series, %d means, want %d", len(report.Series), len(report.Mean), len(want))
	}

	for i, algorithm := range want {
		s := report.Series[i]
		if s["algorithm"] != algorithm || s["name"] != "web" || s["origins"] != 3.0 || report.Mean[i]["algorithm"] != algorithm {
			t.Errorf("row %d = %v, want series web by %s with 3 origins", i, s, algorithm)
		}

		for _, field := range []string{"issued", "wape", "pinball", "coverage", "skill", "fitMillis"} {
			if _, ok := s[field]; !ok {
				t.Errorf("the row of %s lacks %s, want all fields", algorithm, field)
			}
		}
	}

	if !strings.Contains(warnings, "skipping young") {
		t.Errorf("backtest forecast warned %q, want a line on the skipped series young", warnings)
	}
}

func TestBacktestForecastTable(t *testing.T) {
	path := writeSeries(t, t.TempDir(), "web.csv", 9)
	out, _, err := runBacktestForecast(t, "--algorithm", "plain", "--horizon", "6h", "--every", "12h", "--quantile", "0.9", path)
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"SERIES", "web", "plain", "4/4", "mean", "RATIO TO PLAIN"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q:\n%s", want, out)
		}
	}
}

// TestSkillOfForecastAndBacktest checks that both commands print one figure for a series.
func TestSkillOfForecastAndBacktest(t *testing.T) {
	path := writeSeries(t, t.TempDir(), "web.csv", 14)
	var forecasted struct{ Series []jsonForecast }
	var replayed struct {
		Series []struct{ Skill, Origins float64 }
	}
	for command, into := range map[string]any{"forecast": &forecasted, "backtest forecast": &replayed} {
		out, _, err := execute(t, append(strings.Fields(command), "-o", "json", path)...)
		if err != nil {
			t.Fatal(err)
		}

		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Fatal(err)
		}
	}

	f := forecasted.Series[0]
	b := replayed.Series[0]
	if f.Skill == nil || math.Abs(*f.Skill-b.Skill) > 0.05 || float64(f.Origins) != b.Origins {
		t.Errorf("forecast has skill %v of %d origins, want those of the backtest: %.2f of %v", f.Skill, f.Origins, b.Skill, b.Origins)
	}
}

func TestBacktestForecastErrors(t *testing.T) {
	dir := t.TempDir()
	short := writeSeries(t, dir, "short.csv", 3)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no files":  {nil, exitUsage, "want files or directories"},
		"algorithm": {[]string{"--algorithm", "best", short}, exitUsage, `unknown algorithm "best"`},
		"history":   {[]string{"--history", "long", short}, exitUsage, "--history"},
		"horizon":   {[]string{"--horizon", "0s", short}, exitUsage, "--horizon"},
		"quantile":  {[]string{"--quantile", "0.3", short}, exitUsage, "--quantile 0.3"},
		"output":    {[]string{"-o", "yaml", short}, exitUsage, `"yaml"`},
		"too short": {[]string{short}, exitNoResult, "no series is long enough"},
	} {
		_, _, err := runBacktestForecast(t, c.args...)
		var coded *exitError
		if !errors.As(err, &coded) || coded.code != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q with exit code %d", name, err, c.want, c.code)
		}
	}

	if _, _, err := runBacktestForecast(t, dir+"/absent.csv"); err == nil {
		t.Error("backtest of a missing file: no error, want one")
	}
}
