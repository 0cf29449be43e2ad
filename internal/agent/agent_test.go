// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/test/hostrecording"
)

// recordedClock advances a recording while the agent waits.
type recordedClock struct {
	*clocktesting.FakeClock
	next func() time.Duration
}

func (c recordedClock) After(time.Duration) <-chan time.Time {
	c.Step(c.next())
	ready := make(chan time.Time, 1)
	ready <- c.Now()

	return ready
}

// run runs the agent with flags on a recording.
func run(t *testing.T, recording string, flags ...string) (string, error) {
	t.Helper()
	return runWithout(t, recording, nil, flags...)
}

// runWithout runs the agent on a recording without some of its files.
func runWithout(t *testing.T, recording string, missing []string, flags ...string) (string, error) {
	t.Helper()

	rec := hostrecording.ForTest(t, recording)
	strip := func() {
		for _, name := range missing {
			if err := os.RemoveAll(filepath.Join(rec.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}

	strip()
	clk := recordedClock{clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)), func() time.Duration {
		rec.To(1)
		strip()
		return rec.Moments[1].At
	}}

	o := NewOptions()
	o.BindAddress = ""
	fs := pflag.NewFlagSet("crane-agent", pflag.ContinueOnError)
	o.AddFlags(fs)

	if err := fs.Parse(append([]string{"--host-root", rec.Dir, "--collect-interval", "10s", "--hostname-override", "node-1"}, flags...)); err != nil {
		t.Fatal(err)
	}

	if err := o.Validate().ToAggregate(); err != nil {
		return "", err
	}

	var out bytes.Buffer
	err := Run(t.Context(), o, clk, &out)
	return out.String(), err
}

func runOnce(t *testing.T, recording string, flags ...string) jsonReport {
	t.Helper()

	out, err := run(t, recording, append([]string{"--dry-run", "--once", "-o", "json"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}

	var r jsonReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("the output is not JSON: %v: %s", err, out)
	}

	return r
}

// TestOnce checks a node with 2 of 4 cores and 8.4 of 16.8 GB in use, of which one rule each is exceeded.
func TestOnce(t *testing.T) {
	r := runOnce(t, "v2-systemd-containerd", "--rules", "testdata/rules.yaml", "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed")
	if r.Schema != jsonSchema || r.Node != "node-1" || len(r.Pods) != 4 || *r.UsedCPU != 2 || *r.CPUs != 4 {
		t.Errorf("the report is %+v, want node-1 with 4 pods and 2 of 4 cores in use", r)
	}

	pods := map[string]jsonPod{}
	for _, p := range r.Pods {
		pods[p.Namespace+"/"+p.Name] = p
	}

	if p := pods["shop/web"]; *p.UsedCPU != 0.5 || *p.Throttled != 0.5 || *p.Limit != 0.5 || len(p.Allowed) != 0 || p.Class != "Guaranteed" {
		t.Errorf("pod web is %+v, want half a core, throttled half of the time, Guaranteed without actions", p)
	}
	if p := pods["kube-system/proxy-node"]; p.UID != "0d1f2e3c4b5a69788796a5b4c3d2e1f0" {
		t.Errorf("pods are %+v, want the static pod known by its cgroup", r.Pods)
	}

	rules := map[string]jsonRule{}
	for _, rule := range r.Rules {
		rules[rule.Rule] = rule
	}

	if len(rules) != 4 {
		t.Errorf("rules are %+v, want the 4 of this node", r.Rules)
	}
	if c := rules["mixed/cpu"]; c.Phase != "firing" || *c.Value != 2000 || c.Above != 1500 || c.Needed != 2 || math.Abs(c.Gap-550) > 1e-6 {
		t.Errorf("the CPU rule is %+v, want it firing at 2000 above 1500 with a gap of 550", c)
	}
	if m := rules["mixed/memory"]; m.Above != 50.5 || math.Abs(*m.Value-51.17) > 0.01 {
		t.Errorf("the memory rule is %+v, want 51.17 above a threshold of 50.5", m)
	}

	if u := rules["mixed/typo"]; u.Phase != "unknown" || u.Value != nil {
		t.Errorf("the rule with an unknown metric is %+v, want no value", u)
	}
	if len(r.RuleTrouble) != 1 || !strings.Contains(r.RuleTrouble[0], "cpu_total_usge") {
		t.Errorf("problems are %v, want the misspelled metric", r.RuleTrouble)
	}

	// The lowest priority first, by a step of a fifth, then the next; all are needed.
	want := map[string]float64{"batch/grep": 0.2, "batch/sort": 0.72, "kube-system/proxy-node": 0.08}

	seen := 0
	for _, th := range r.Throttles {
		if th.Preview {
			continue
		}

		seen++
		if math.Abs(want[th.Pod]-th.To) > 1e-9 || th.Container != "main" || th.From != "no limit" {
			t.Errorf("the throttle is %+v, want container main from no limit to %g cores", th, want[th.Pod])
		}
	}

	if seen == 0 || !r.Avoid.Wanted {
		t.Errorf("the report is %+v, want throttles and the taint", r)
	}
	// 114 MiB and a tenth more are needed; the lowest priority has 300 MiB. The static pod is exempt.
	if len(r.Evictions) != 1 || r.Evictions[0].Pod != "batch/grep" || *r.Evictions[0].Grace != 7 {
		t.Errorf("evictions are %+v, want batch/grep with 7s", r.Evictions)
	}
}

// TestWaterMarks checks that the scheduler's water marks apply.
func TestWaterMarks(t *testing.T) {
	r := runOnce(t, "v2-systemd-containerd", "--rules", "testdata/rules.yaml", "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed",
		"--policy-config-path", "../../examples/dynamic-scheduler-policy.yaml")
	if len(r.Evictions) > 0 {
		t.Errorf("evictions are %+v, want none below the water mark", r.Evictions)
	}

	reported := false
	for _, rule := range r.Rules {
		reported = reported || strings.Contains(rule.Why, "water mark")
	}

	if !reported {
		t.Errorf("rules are %+v, want the water mark as a reason", r.Rules)
	}
}

// TestAlone checks that without an API server and a list of pods the host is shown and no pod is affected.
func TestAlone(t *testing.T) {
	for _, recording := range []string{"hybrid-cgroupfs", "v2-systemd-containerd", "v2-systemd-crio"} {
		r := runOnce(t, recording, "--rules", "testdata/rules.yaml")
		if len(r.Pods) < 3 || r.UsedCPU == nil || len(r.Pressure) != 3 || len(r.Disks) != 1 || len(r.Throttles)+len(r.Evictions) > 0 {
			t.Errorf("%s: the report is %+v, want the host's measurements without actions", recording, r)
		}
		// All NodeQOS, because the node's labels are unknown.
		if len(r.Rules) != 5 {
			t.Errorf("%s: %d rules, want 5", recording, len(r.Rules))
		}

		states := map[string]string{}
		for _, f := range r.Features {
			states[f.Name] = f.String()
		}

		if !strings.HasPrefix(states["pods"], "on") || !strings.HasPrefix(states["pod-pressure"], "on") || !strings.HasPrefix(states["cpi"], "unsupported: ") {
			t.Errorf("%s: features are %v, want pods and pod-pressure on, and cpi unsupported", recording, states)
		}

		want := "unsupported: cgroup hybrid"
		if recording != "hybrid-cgroupfs" {
			want = "off: "
		}
		if !strings.HasPrefix(states["memory-high"], want) {
			t.Errorf("%s: memory-high is %q, want %q", recording, states["memory-high"], want)
		}
	}
}

func TestTable(t *testing.T) {
	out, err := run(t, "v2-systemd-crio", "--dry-run", "--once", "--rules", "testdata/rules.yaml", "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed")
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{
		"cgroup v2, driver systemd", "on: in kubepods.slice", "shop/web", "fires after 2 in a row", "to release, with a margin: 0.550 cores; 0.000 cores is being released, 0.250 cores would be released now, 0.300 cores would remain", "Would limit batch/grep container main from no limit to 0.2 cores",
		"Would evict batch/grep with a grace period of 7s, which frees 300 MiB, by rule mixed/memory", "which frees 0.050 cores", "calm-down (preview)", "In preview", "New pods would be kept away: yes", "static pod",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q, want it in\n%s", want, out)
		}
	}
}

func TestFlags(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: ensurance.crane.io/v1alpha1\nkind: NodeQOS\nmetadata: {name: a}\nspec: {rulez: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for want, flags := range map[string][]string{
		"--dry-run":              {"--rules", "testdata/rules.yaml"},
		"requires --dry-run":     {"--once", "--enforce", "cpu-throttle"},
		"Unsupported value":      {"--enforce", "scale", "--node-labels", "a=b"},
		"requires an API server": {"--enforce", "cpu-throttle,evict", "--node-labels", "a=b"},
		"--eviction-budget":      {"--dry-run", "--once", "--eviction-budget", "-1"},
		"must be from 1s":        {"--dry-run", "--once", "--eviction-budget-window", "1ms"},
		"--audit-max-bytes":      {"--dry-run", "--once", "--audit-max-bytes", "5"},
		"--node-labels":          {"--enforce", "cpu-throttle", "--rules", "testdata/rules.yaml"},
		"--collect-interval":     {"--dry-run", "--once", "--collect-interval", "1ms"},
		"--host-root":            {"--dry-run", "--once", "--host-root", "/nowhere"},
		"--execute-excess":       {"--dry-run", "--once", "--execute-excess", "ten"},
		"--output":               {"--dry-run", "--once", "-o", "xml"},
		"--pods":                 {"--dry-run", "--once", "--pods", "a", "--kubeconfig", "b"},
		"rulez":                  {"--dry-run", "--once", "--rules", bad},
		"no such file":           {"--dry-run", "--once", "--rules", "/nowhere.yaml"},
		"kind is":                {"--dry-run", "--once", "--pods", "testdata/rules.yaml"},
	} {
		if _, err := run(t, "v2-systemd-containerd", flags...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", flags, err, want)
		}
	}
}

// TestScenario runs a scenario and checks the report of failed expectations.
func TestScenario(t *testing.T) {
	var out bytes.Buffer
	o := NewOptions()
	o.Scenario = "../../test/scenarios/pressure/d05-gives-all-back.txt"
	if err := Run(t.Context(), o, nil, &out); err != nil || !strings.Contains(out.String(), "the node welcomes new pods again") {
		t.Errorf("Run of a scenario = %v, want nil and the end of the taint:\n%s", err, out.String())
	}

	text, err := os.ReadFile(o.Scenario)
	if err != nil {
		t.Fatal(err)
	}

	o.Scenario = filepath.Join(t.TempDir(), "wrong.txt")
	if err := os.WriteFile(o.Scenario, bytes.ReplaceAll(text, []byte("expect evicted none"), []byte("expect evicted batch/limited")), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := Run(t.Context(), o, nil, &out); err == nil || !strings.Contains(out.String(), "FAILED line") {
		t.Errorf("Run of a failing scenario = %v, want an error and the failed line:\n%s", err, out.String())
	}
}
