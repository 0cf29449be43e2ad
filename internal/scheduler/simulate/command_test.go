// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/internal/scheduler/simulate/summary"
	"crane.io/crane/pkg/series"
)

// scenarioFile writes a scenario of a few nodes and a quarter of an hour.
func scenarioFile(t *testing.T) string {
	t.Helper()

	content, err := os.ReadFile("simscenario/files/steady.yaml")
	if err != nil {
		t.Fatal(err)
	}

	small := strings.NewReplacer("name: steady", "name: small", "count: 1000", "count: 8", "warmUp: 45m, measure: 75m", "warmUp: 10m, measure: 10m").Replace(string(content))
	path := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(path, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func run(t *testing.T, args ...string) (string, string, error) {
	t.Helper()

	var out, errOut bytes.Buffer
	cmd := NewCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())

	return out.String(), errOut.String(), err
}

// TestHelp checks that the help is that of the command and not that of kube-scheduler, whose functions it would inherit.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	scheduler := &cobra.Command{Use: "crane-scheduler"}
	scheduler.SetUsageFunc(func(c *cobra.Command) error { c.Print("--leader-elect"); return nil })
	scheduler.SetHelpFunc(func(c *cobra.Command, _ []string) { c.Print("--leader-elect") })
	scheduler.AddCommand(NewCommand())
	scheduler.SetOut(&out)
	scheduler.SetArgs([]string{"simulate", "--help"})

	if err := scheduler.Execute(); err != nil {
		t.Fatal(err)
	}

	for want, there := range map[string]bool{"measures how": true, "crane-scheduler simulate [flags]": true, "--scenario strings": true, "--leader-elect": false} {
		if strings.Contains(out.String(), want) != there {
			t.Errorf("%s: want %v in\n%s", want, there, out.String())
		}
	}
}

// TestCommand checks that the same flags give the same report with any parallelism, in each format.
func TestCommand(t *testing.T) {
	flags := []string{"--scenario", scenarioFile(t), "--seeds", "2", "--delays", "30s,90s", "--policies", "default,spread,oracle"}
	out, progress, err := run(t, append(flags, "-o", "json", "--parallel", "2")...)
	if err != nil {
		t.Fatal(err)
	}

	// Two seeds of two policies that read no metrics, and of one that does at two delays.
	if n := strings.Count(progress, " run "); n != 2*(2+2) {
		t.Errorf("%d runs:\n%s", n, progress)
	}

	var found summary.Report
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatal(err)
	}

	if len(found.Scenarios) != 2 || found.Scenarios[1].Delay != "1m30s" || len(found.Scenarios[0].Rows) != 3 {
		t.Fatalf("%s", out)
	}

	for _, s := range found.Scenarios {
		if s.Rows[0].Summary.SigmaClosed.Mean != 0 || s.Rows[2].Summary.SigmaClosed.Mean != 1 || s.Rows[0].Summary.LikeDefault != 2 {
			t.Errorf("default closes %v of the gap, the oracle %v", s.Rows[0].Summary.SigmaClosed, s.Rows[2].Summary.SigmaClosed)
		}
		if len(s.Rows[1].Runs) != 2 || s.Rows[1].Runs[0].Placed == 0 {
			t.Errorf("%+v", s.Rows[1])
		}
	}

	if again, _, err := run(t, append(flags, "-o", "json", "--parallel", "1", "-q")...); err != nil || again != out {
		t.Errorf("a second run gives another report, %v", err)
	}
}

func TestFormats(t *testing.T) {
	flags := []string{"--scenario", scenarioFile(t), "--seeds", "1", "--policies", "default,oracle", "-q"}
	for format, want := range map[string]string{"table": "gap closed", "markdown": "| default |", "svg": "</svg>"} {
		out, progress, err := run(t, append(flags, "-o", format)...)
		if err != nil || !strings.Contains(out, want) || progress != "" {
			t.Errorf("%s: %v, %q, progress %q", format, err, out, progress)
		}
	}
}

func TestBadFlags(t *testing.T) {
	file := scenarioFile(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--scenario", "nothing"}, "no such scenario"},
		{[]string{"--scenario", "/does/not/exist.yaml"}, "reading a scenario"},
		{[]string{"--scenario", file, "--policies", "default,best"}, `policy "best"`},
		{[]string{"--scenario", file, "--seeds", "0"}, "--seeds 0"},
		{[]string{"--scenario", file, "--nodes", "1"}, "nodes.count"},
		{[]string{"--scenario", file, "-o", "yaml"}, "--output"},
		{[]string{"--herd", "-o", "svg"}, "--output"},
		{[]string{"--scenario", file, "--parallel", "0"}, "--parallel"},
		{[]string{"--scenario", file, "--policy-file", "command.go"}, "policy file"},
		{[]string{"unexpected"}, "unknown command"},
	} {
		if _, _, err := run(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want an error with %q", c.args, err, c.want)
		}
	}
}

func TestHerdCommand(t *testing.T) {
	for format, want := range map[string]string{"table": "on the idle node", "markdown": "| default |", "json": `"onIdleNode"`} {
		if out, _, err := run(t, "--herd", "--nodes", "20", "--policies", "default", "-o", format); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %q", format, err, out)
		}
	}
}

// TestTraceAbsent checks that a scenario without its trace is skipped, and that the report has the reason.
func TestTraceAbsent(t *testing.T) {
	out, _, err := run(t, "--scenario", "trace", "--traces", t.TempDir(), "-q")
	if err != nil || !strings.Contains(out, "trace: skipped:") || !strings.Contains(out, "cluster-nodes.csv") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestPolicies checks that the simulated policies are the shipped ones, and that rebalancing differs only in marks
// and periods.
func TestPolicies(t *testing.T) {
	dir := t.TempDir()
	files, err := openPolicies("", dir)
	if err != nil {
		t.Fatal(err)
	}

	builtin, err := policyfile.Builtin()
	if err != nil {
		t.Fatal(err)
	}

	if content, err := os.ReadFile(files.usual.path); err != nil || !bytes.Equal(content, policyfile.BuiltinFile()) || !reflect.DeepEqual(files.usual.read, builtin) {
		t.Errorf("another policy than the built-in one is simulated, %v", err)
	}

	read := files.rebalanced.read
	if !reflect.DeepEqual(read.Weights, builtin.Weights) || read.Marks[series.CPU].Evict >= builtin.Marks[series.CPU].Evict {
		t.Errorf("rebalancing: %+v", read)
	}

	named, err := openPolicies("../../../examples/dynamic-scheduler-policy.yaml", dir)
	if err != nil || named.usual != named.rebalanced || named.usual.read.Metrics[1].Name != "cpu_usage_max_avg_1h" {
		t.Errorf("%+v, %v", named, err)
	}
}

// TestStopped checks that a stopped run removes its files.
func TestStopped(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)

	ctx, cancel := context.WithCancel(t.Context())
	o := &Options{Scenarios: []string{scenarioFile(t)}, Seeds: 2, FirstSeed: 1, Parallel: 1, Policies: []string{"default", "spread", "oracle"}}
	if _, err := Run(ctx, o, stopper(cancel)); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is stopped: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// stopper stops at the first write.
type stopper func()

func (s stopper) Write(p []byte) (int, error) {
	s()
	return len(p), nil
}
