// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

const header = "apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\n"

const good = header + `spec:
  syncPolicy:
  - {name: cpu_usage_avg_5m, period: 3m}
  - {name: memory_now, period: 1m, source: MetricsServer}
  predicate:
  - {name: cpu_usage_avg_5m, maxLimitPecent: 0.65}
  priority:
  - {name: cpu_usage_avg_5m, weight: 2}
  hotValue:
  - {timeRange: 5m, count: 5}
  waterMarks:
    cpu: {low: 0.3, schedule: 0.6, evict: 0.8}
`

func TestDecode(t *testing.T) {
	p, err := policyfile.Decode([]byte(good))
	if err != nil {
		t.Fatalf("Decode: %v, want no error", err)
	}

	if len(p.Metrics) != 2 || p.Metrics[1].From != nodeload.FromMetricsServer || p.Metrics[1].Resource != units.Memory {
		t.Errorf("metrics %+v, want two, the second of memory from metrics-server", p.Metrics)
	}
	if len(p.Limits) != 1 || p.Limits[0] != (nodeload.Limit{Metric: 0, Max: 0.6, Mark: true}) {
		t.Errorf("limits %+v, want the mark of 0.6 for the first metric", p.Limits)
	}
	if len(p.Weights) != 1 || p.Weights[0].Weight != 1 || len(p.Hot) != 1 || p.Hot[0].Range != 5*time.Minute {
		t.Errorf("weights %+v, hot %+v, want a weight of 1 and a range of 5m", p.Weights, p.Hot)
	}
}

// observed records notifications.
type observed struct {
	loaded  []*nodeload.Policy
	refused []string
}

func (o *observed) PolicyLoaded(p *nodeload.Policy) { o.loaded = append(o.loaded, p) }
func (o *observed) PolicyRefused(err error)         { o.refused = append(o.refused, err.Error()) }

func write(t *testing.T, path, content string) {
	t.Helper()

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatalf("writing %s: %v", path, err)
	}
}

// TestBadFilesLeaveTheOldInForce checks that each invalid content is reported once and the policy stays.
func TestBadFilesLeaveTheOldInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, good)

	f, err := policyfile.Open(path, time.Minute, clock.RealClock{})
	if err != nil {
		t.Fatalf("Open: %v, want no error", err)
	}

	first := f.Policy()
	o := &observed{}
	bad := []struct{ content, want string }{
		{"", "the file is empty"},
		{header + "spec: {predicates: []}", "unknown field"},
		{strings.Replace(good, "weight: 2", "weight: 0", 1), "spec.priority"},
		{strings.Replace(good, "count: 5", "count: 0", 1), "spec.hotValue[0].count"},
		{strings.Replace(good, "schedule: 0.6", "schedule: 0.9", 1), "spec.waterMarks[cpu].schedule"},
		{strings.Repeat(" ", 2<<20), "more than"},
	}

	for i, b := range bad {
		write(t, path, b.content)
		f.Reload(o)
		f.Reload(o)

		if len(o.refused) != i+1 || !strings.Contains(o.refused[i], b.want) || !strings.Contains(o.refused[i], path) {
			t.Fatalf("Reload reported %q, want one more with %q and the path", o.refused, b.want)
		}

		if f.Policy() != first {
			t.Fatalf("after Reload of %q Policy() is another one, want the old one", b.content)
		}
	}

	if err := os.Remove(path); err != nil {
		t.Fatalf("removing %s: %v", path, err)
	}

	f.Reload(o)
	if len(o.refused) != len(bad)+1 || f.Policy() != first {
		t.Errorf("Reload of a deleted file reported %q, want one error and the old policy", o.refused[len(bad):])
	}

	if err := testutil.CollectAndCompare(f, strings.NewReader(`
		# HELP crane_nodeload_policy_loads_total Loaded contents of the policy file, by result.
		# TYPE crane_nodeload_policy_loads_total counter
		crane_nodeload_policy_loads_total{result="loaded"} 1
		crane_nodeload_policy_loads_total{result="refused"} 7
		# HELP crane_nodeload_policy_valid 1 if the policy file is in force, 0 if it is invalid and an older policy is in force.
		# TYPE crane_nodeload_policy_valid gauge
		crane_nodeload_policy_valid 0
	`), "crane_nodeload_policy_loads_total", "crane_nodeload_policy_valid"); err != nil {
		t.Errorf("Collect: %v", err)
	}

	// The previous content is not reported as new, but it is valid again.
	write(t, path, good)
	f.Reload(o)

	if len(o.loaded) != 0 {
		t.Errorf("Reload of the first content reported policies %v, want none", o.loaded)
	}

	write(t, path, strings.Replace(good, "0.65", "0.55", 1))
	f.Reload(o)

	if len(o.loaded) != 1 || f.Policy() != o.loaded[0] || f.Policy().Limits[0].Max != 0.55 {
		t.Errorf("Reload of another limit reported policies %+v, want one with 0.55 in force", o.loaded)
	}
}

func TestOpenWantsAGoodFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if _, err := policyfile.Open(path, time.Minute, clock.RealClock{}); !os.IsNotExist(err) {
		t.Errorf("Open without a file: %v, want a not-exist error", err)
	}

	write(t, path, header+"spec: {unknown: 1}")
	if _, err := policyfile.Open(path, time.Minute, clock.RealClock{}); err == nil || !strings.Contains(err.Error(), "spec.unknown") {
		t.Errorf("Open of an invalid file: %v, want an error with spec.unknown", err)
	}
}

// TestFollowsLinks replaces the file as the kubelet does for a ConfigMap: by swapping a symbolic link.
func TestFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	for name, limit := range map[string]string{"one": "0.65", "two": "0.45"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatalf("creating a folder: %v", err)
		}

		write(t, filepath.Join(dir, name, "policy.yaml"), strings.Replace(good, "0.65", limit, 1))
	}

	link := filepath.Join(dir, "data")
	if err := os.Symlink("one", link); err != nil {
		t.Fatalf("linking: %v", err)
	}

	synctest.Test(t, func(t *testing.T) {
		f, err := policyfile.Open(filepath.Join(link, "policy.yaml"), time.Minute, clock.RealClock{})
		if err != nil {
			t.Fatalf("Open: %v, want no error", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)

			f.Run(ctx, nil)
		}()

		next := filepath.Join(dir, "next")
		if err := os.Symlink("two", next); err != nil {
			t.Fatalf("linking: %v", err)
		}

		if err := os.Rename(next, link); err != nil {
			t.Fatalf("renaming the link: %v", err)
		}

		<-time.After(61 * time.Second)
		synctest.Wait()

		if got := f.Policy().Limits[0].Max; got != 0.45 {
			t.Errorf("the limit after the link was replaced is %v, want 0.45", got)
		}

		cancel()
		<-done
	})
}
