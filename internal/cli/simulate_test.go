// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/pkg/scaling/replay"
)

// writeDailyLoad writes nine days of load that increases every morning.
func writeDailyLoad(t *testing.T, dir, name string) {
	t.Helper()

	var b strings.Builder
	b.WriteString("ts,value\n")

	for m := range 9 * 24 * 60 {
		load := 5 + math.Sin(float64(m))
		if hour := m / 60 % 24; hour >= 9 && hour < 17 {
			load *= 8
		}

		fmt.Fprintf(&b, "%d,%.3f\n", 1_700_006_400+60*m, load)
	}

	if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSimulateAutoscale(t *testing.T) {
	dir := t.TempDir()
	writeDailyLoad(t, dir, "office.csv")

	if err := os.WriteFile(filepath.Join(dir, "idle.csv"), []byte("ts,value\n1700006400,0\n1700006460,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	var out, errOut strings.Builder
	args := []string{"crane", "simulate", "autoscale", "--pods", "10", "--startup", "180s", "-o", "json", dir}
	if code := Main(args, strings.NewReader(""), &out, &errOut); code != exitOK {
		t.Fatalf("simulate autoscale: exit %d, want %d: %s", code, exitOK, errOut.String())
	}

	if !strings.Contains(errOut.String(), "skipping idle") {
		t.Errorf("warnings %q, want one that the series of zeros is skipped", errOut.String())
	}

	var report replay.Report
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, r := range report.Series {
		names = append(names, r.Name+"/"+r.Scaler)
		if r.Pods != 10 || r.StartupSeconds != 180 || r.ScoredHours != 48 || r.ReplicaHours <= 0 {
			t.Errorf("result = %+v, want 10 pods, a startup of 180 s, 48 hours and replica hours above 0", r)
		}
	}

	if got, want := strings.Join(names, " "), "office/reactive office/ehpa office/plain office/low-target office/cron office/oracle"; got != want {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestSimulateAutoscaleErrors(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "want files or directories"},
		{"--pods 0 .", exitUsage, "--pods 0"},
		{"--startup later .", exitUsage, "--startup"},
		{"--target 1.2 .", exitUsage, "--target 1.2"},
		{"--budget -1 .", exitUsage, "--budget"},
		{"-o yaml .", exitUsage, "--output"},
		{"/does/not/exist", exitFailure, "reading series"},
	} {
		var out, errOut strings.Builder
		code := Main(append([]string{"crane", "simulate", "autoscale"}, strings.Fields(c.args)...), strings.NewReader(""), &out, &errOut)
		if code != c.code || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%q: exit code %d, %q; want %d with %q", c.args, code, errOut.String(), c.code, c.want)
		}
	}
}
