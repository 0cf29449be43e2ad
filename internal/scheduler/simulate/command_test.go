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
	"crane.io/crane/pkg/units"
)

// scenarioFile writes a scenario of a few nodes and a quarter of an hour.
func scenarioFile(t *testing.T) string {
	t.Helper()

	content, err := os.ReadFile("simscenario/files/steady.yaml")
	if err != nil {
		t.Fatalf("reading the scenario: %v", err)
	}

	small := strings.NewReplacer("name: steady", "name: small", "count: 1000", "count: 8", "warmUp: 45m, measure: 75m", "warmUp: 10m, measure: 10m").Replace(string(content))
	path := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(path, []byte(small), 0o600); err != nil {
		t.Fatalf("writing the scenario: %v", err)
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
		t.Fatalf("simulate --help: %v, want no error", err)
	}

	for want, present := range map[string]bool{"measures how": true, "crane-scheduler simulate [flags]": true, "--scenario strings": true, "--leader-elect": false} {
		if strings.Contains(out.String(), want) != present {
			t.Errorf("simulate --help has %q: want %t in\n%s", want, present, out.String())
		}
	}
}

// TestCommand checks that the same flags give the same report with any parallelism, in each format.
func TestCommand(t *testing.T) {
	flags := []string{"--scenario", scenarioFile(t), "--seeds", "2", "--delays", "30s,90s", "--policies", "default,spread,oracle"}
	out, progress, err := run(t, append(flags, "-o", "json", "--parallel", "2")...)
	if err != nil {
		t.Fatalf("simulate %v: %v, want no error", flags, err)
	}

	// Two seeds of two policies that read no metrics, and of one that does at two delays.
	if n := strings.Count(progress, " run "); n != 2*(2+2) {
		t.Errorf("simulate reports %d runs, want 8:\n%s", n, progress)
	}

	var report summary.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("decoding the report: %v, want JSON:\n%s", err, out)
	}

	if len(report.Scenarios) != 2 || report.Scenarios[1].Delay != "1m30s" || len(report.Scenarios[0].Rows) != 3 {
		t.Fatalf("simulate = %s, want two delays, the second of 1m30s, with three policies", out)
	}

	for _, s := range report.Scenarios {
		if s.Rows[0].Summary.SigmaClosed.Mean != 0 || s.Rows[2].Summary.SigmaClosed.Mean != 1 || s.Rows[0].Summary.LikeDefault != 2 {
			t.Errorf("default closes %v of the gap, the oracle %v, want 0 and 1", s.Rows[0].Summary.SigmaClosed, s.Rows[2].Summary.SigmaClosed)
		}
		if len(s.Rows[1].Runs) != 2 || s.Rows[1].Runs[0].Placed == 0 {
			t.Errorf("spread has %+v, want two runs with placed pods", s.Rows[1])
		}
	}

	again, _, err := run(t, append(flags, "-o", "json", "--parallel", "1", "-q")...)
	if err != nil || again != out {
		t.Errorf("a repeated run gives another report (%v), want the same:\n%s", err, again)
	}
}

func TestFormats(t *testing.T) {
	flags := []string{"--scenario", scenarioFile(t), "--seeds", "1", "--policies", "default,oracle", "-q"}
	for format, want := range map[string]string{"table": "gap closed", "markdown": "| default |", "svg": "</svg>"} {
		out, progress, err := run(t, append(flags, "-o", format)...)
		if err != nil || !strings.Contains(out, want) || progress != "" {
			t.Errorf("-o %s = %q, progress %q, %v, want %q and no progress", format, out, progress, err, want)
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
			t.Errorf("simulate %v: %v, want an error with %q", c.args, err, c.want)
		}
	}
}

func TestHerdCommand(t *testing.T) {
	for format, want := range map[string]string{"table": "on the idle node", "markdown": "| default |", "json": `"onIdleNode"`} {
		if out, _, err := run(t, "--herd", "--nodes", "20", "--policies", "default", "-o", format); err != nil || !strings.Contains(out, want) {
			t.Errorf("--herd -o %s = %q, %v, want %q", format, out, err, want)
		}
	}
}

// TestTraceAbsent checks that a scenario without its trace is skipped, and that the report has the reason.
func TestTraceAbsent(t *testing.T) {
	out, _, err := run(t, "--scenario", "trace", "--traces", t.TempDir(), "-q")
	if err != nil || !strings.Contains(out, "trace: skipped:") || !strings.Contains(out, "cluster-nodes.csv") {
		t.Errorf("simulate without a trace = %q, %v, want it skipped for cluster-nodes.csv", out, err)
	}
}

// TestPolicies checks that the simulated policies are the shipped ones, and that rebalancing differs only in marks
// and periods.
func TestPolicies(t *testing.T) {
	dir := t.TempDir()
	files, err := openPolicies("", dir)
	if err != nil {
		t.Fatalf("openPolicies: %v, want no error", err)
	}

	builtin, err := policyfile.Builtin()
	if err != nil {
		t.Fatalf("Builtin: %v, want no error", err)
	}

	if content, err := os.ReadFile(files.usual.path); err != nil || !bytes.Equal(content, policyfile.BuiltinFile()) || !reflect.DeepEqual(files.usual.policy, builtin) {
		t.Errorf("the simulated policy is %+v (%v), want the built-in one", files.usual.policy, err)
	}

	rebalanced := files.rebalanced.policy
	if !reflect.DeepEqual(rebalanced.Weights, builtin.Weights) || rebalanced.Marks[units.CPU].Evict >= builtin.Marks[units.CPU].Evict {
		t.Errorf("the policy with rebalancing is %+v, want the built-in weights and a lower mark", rebalanced)
	}

	named, err := openPolicies("../../../examples/dynamic-scheduler-policy.yaml", dir)
	if err != nil || named.usual != named.rebalanced || named.usual.policy.Metrics[1].Name != "cpu_usage_max_avg_1h" {
		t.Errorf("openPolicies of gocrane's policy = %+v, %v, want that file for both variants", named, err)
	}
}

// TestStopped checks that a stopped run removes its files.
func TestStopped(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)

	ctx, cancel := context.WithCancel(t.Context())
	o := &Options{Scenarios: []string{scenarioFile(t)}, Seeds: 2, FirstSeed: 1, Parallel: 1, Policies: []string{"default", "spread", "oracle"}}
	if _, err := Run(ctx, o, stopper(cancel)); !errors.Is(err, context.Canceled) {
		t.Errorf("Run with a canceled context: %v, want context.Canceled", err)
	}
	if remaining, err := os.ReadDir(dir); err != nil || len(remaining) > 0 {
		t.Errorf("after Run the folder has %v (%v), want no files", remaining, err)
	}
}

// stopper stops at the first write.
type stopper func()

func (s stopper) Write(p []byte) (int, error) {
	s()
	return len(p), nil
}
