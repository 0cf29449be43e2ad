// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestForecastHolidays(t *testing.T) {
	dir := t.TempDir()
	path := writeSeries(t, dir, "web.csv", 10) // to 2026-03-11

	dates := filepath.Join(dir, "holidays.txt")
	if err := os.WriteFile(dates, []byte("# bank holidays\n2026-03-04 # a Wednesday\n\n2026-03-12\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	code, plain, errOut := runCrane(t, "forecast", path)
	if code != exitOK {
		t.Fatalf("forecast: exit %d, want %d: %s", code, exitOK, errOut)
	}

	for _, args := range [][]string{
		{"forecast", "--holidays", dates, path}, {"forecast", "--holidays", "2026-03-04,2026-03-12", "--time-zone", "Europe/Berlin", path},
	} {
		code, out, errOut := runCrane(t, args...)
		if code != exitOK || out == plain {
			t.Errorf("forecast %v: exit %d, want %d with another forecast\n%s", args, code, exitOK, errOut)
		}
	}

	if code, _, errOut := runCrane(t, "backtest", "forecast", "--holidays", dates, path); code != exitOK {
		t.Errorf("backtest forecast --holidays: exit %d, want %d: %s", code, exitOK, errOut)
	}

	empty := filepath.Join(dir, "empty.txt")
	if err := os.WriteFile(empty, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for want, args := range map[string][]string{
		"tomorrow":      {"--holidays", "tomorrow"},
		"no dates":      {"--holidays", empty},
		"--time-zone":   {"--holidays", "2026-03-04", "--time-zone", "Moon/Base"},
		"not dsp":       {"--holidays", "2026-03-04", "--algorithm", "dsp"},
		"is not a file": {"--holidays", dir},
	} {
		for _, command := range [][]string{{"forecast"}, {"backtest", "forecast"}} {
			code, _, errOut := runCrane(t, append(append(command, args...), path)...)
			if code != exitUsage || !strings.Contains(errOut, want) {
				t.Errorf("%v %v: exit %d, %q lacks %q", command, args, code, errOut, want)
			}
		}
	}
}
