// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/qos"
)

const readerUID = "33333333-3333-3333-3333-333333333333"

const squeezeRules = `apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: mixed}
spec:
  nodeQualityProbe: {nodeLocalGet: {localCacheTTLSeconds: 60}}
  rules:
  - {name: memory, actionName: squeeze, avoidanceThreshold: 2, restoreThreshold: 2, metricRule: {name: memory_total_usage, value: 12Gi}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec: {allowedActions: [squeeze], labelSelector: {matchLabels: {app: reader}}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: squeeze}
spec: {coolDownSeconds: 1, throttle: {memoryThrottle: {}}}
`

// memoryFixture is a host of 16 GiB, 11 of them used by the system, with a pod that reads files of 2 GiB.
type memoryFixture struct {
	t    *testing.T
	dir  string
	host *kernel.Machine
	clk  *clocktesting.FakeClock
	loop *loop
	high string // the file
}

func newMemoryFixture(t *testing.T, v1 bool) *memoryFixture {
	t.Helper()

	n := &memoryFixture{t: t, dir: t.TempDir(), clk: clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))}
	var err error
	if n.host, err = kernel.NewMachine(n.dir, kernel.Spec{V1: v1, System: kernel.Load{Anon: 11 << 30}}, n.clk); err != nil {
		t.Fatal(err)
	}

	id := containerID("3")
	if err := n.host.AddPod(kernel.Pod{UID: readerUID, Class: "BestEffort", Containers: []kernel.Container{{ID: id}}}); err != nil {
		t.Fatal(err)
	}

	n.high = filepath.Join(n.host.Tree().Dir, n.host.ContainerGroup(n.host.PodGroup(readerUID, "BestEffort"), id), cgroup.FileHigh)
	return n
}

// start wires an agent and runs its memory throttler; the returned function stops it.
func (n *memoryFixture) start() (end func()) {
	n.t.Helper()

	view := known(n.t, squeezeRules, podOn(readerUID, "reader", containerID("3")))
	var beside []Manager

	_, n.loop, beside = fixture{n.dir, n.t.TempDir(), n.clk, n.host.Tree(), view}.agent(n.t, enforceMemory)
	ctx, cancel := context.WithCancel(n.t.Context())
	var running sync.WaitGroup
	for _, m := range beside {
		running.Go(func() {
			if err := m.Run(ctx); err != nil {
				n.t.Error(err)
			}
		})
	}

	return func() {
		cancel()
		running.Wait()
	}
}

// tick advances the clock by a second with the given anonymous memory of the pod.
func (n *memoryFixture) tick(anon int64) qos.Plan {
	n.t.Helper()

	n.clk.Step(time.Second)
	if err := n.host.SetDemand(readerUID, containerID("3"), kernel.Load{Anon: anon, File: 2 << 30}); err != nil {
		n.t.Fatal(err)
	}

	if _, err := n.host.Advance(); err != nil {
		n.t.Fatal(err)
	}

	return n.loop.tick(n.clk.Now())
}

func (n *memoryFixture) limit() string {
	n.t.Helper()

	content, err := os.ReadFile(n.high)
	if err != nil {
		n.t.Fatal(err)
	}

	return strings.TrimSpace(string(content))
}

// until advances the clock until the limit is as expected, which happens asynchronously.
func (n *memoryFixture) until(anon int64, what string, wanted func(limit string) bool) {
	n.t.Helper()

	if err := wait.PollUntilContextTimeout(n.t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		n.tick(anon)
		limit := n.limit()
		return limit != "" && wanted(limit), nil // A file being written may be empty.
	}); err != nil {
		n.t.Fatalf("%s: the limit is %s, want another: %v", what, n.limit(), err)
	}
}

// TestMemoryThrottle checks the path from files to decisions to files: the limit is lowered under pressure and restored when the node is
// calm and at the end.
func TestMemoryThrottle(t *testing.T) {
	n := newMemoryFixture(t, false)
	end := n.start()
	const tight, calm = 1536 << 20, 64 << 20

	bytes := func(limit string) int64 {
		v, err := strconv.ParseInt(limit, 10, 64)
		if err != nil {
			return math.MaxInt64
		}

		return v
	}

	n.tick(calm)
	if plan := n.tick(tight); len(plan.MemoryThrottles) > 0 || n.limit() != "max" {
		t.Errorf("after one measurement the plan is %+v with limit %s, want no throttle", plan, n.limit())
	}

	n.until(tight, "not throttled", func(limit string) bool { return bytes(limit) < 3<<30 })
	if got := bytes(n.limit()); got < tight {
		t.Errorf("the limit is %d, want at least the %d that processes use", got, int64(tight))
	}

	n.until(calm, "not given back", func(limit string) bool { return limit == "max" })
	n.until(tight, "not throttled again", func(limit string) bool { return limit != "max" })
	end()

	if got := n.limit(); got != "max" {
		t.Errorf("at the end the limit is %s, want max", got)
	}
}

// TestMemoryThrottleWithoutHigh checks that memory throttling is reported as unsupported on cgroup v1.
func TestMemoryThrottleWithoutHigh(t *testing.T) {
	n := newMemoryFixture(t, true)
	end := n.start()
	defer end()

	if n.loop.memory != nil {
		t.Error("a host without memory.high has a memory throttler, want none")
	}

	for range 5 {
		if plan := n.tick(1536 << 20); len(plan.MemoryThrottles) > 0 {
			t.Errorf("memory throttles are %+v, want none", plan.MemoryThrottles)
		}
	}

	layout, err := cgroup.Detect(host.Root(n.dir))
	if err != nil {
		t.Fatal(err)
	}

	o := NewOptions()
	o.Enforce = []string{enforceMemory}
	for _, f := range o.enforceFeatures(&layout) {
		if f.Name == "enforce-memory-throttle" && f.String() != "unsupported: cgroup v1" {
			t.Errorf("the feature is %s, want it unsupported on cgroup v1", f)
		}
	}
}

// TestOnceMemory checks the output of memory throttles.
func TestOnceMemory(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := strings.ReplaceAll(squeezeRules, "memory_total_usage, value: 12Gi", "memory_total_utilization, value: 50.5")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "{app: reader}", "{workload: batch}"), "memoryThrottle: {}", "memoryThrottle: {forceGC: true}")
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	r := runOnce(t, "v2-systemd-containerd", "--rules", rules, "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed")
	if len(r.MemoryThrottles) == 0 || r.MemoryThrottles[0].Rule != "mixed/memory" || r.MemoryThrottles[0].To < 16<<20 || r.MemoryThrottles[0].Container != "main" {
		t.Errorf("memory throttles are %+v, want one of container main by rule mixed/memory", r.MemoryThrottles)
	}

	out, err := run(t, "v2-systemd-containerd", "--dry-run", "--once", "--rules", rules, "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed")
	if err != nil || !strings.Contains(out, "Would limit memory of batch/") {
		t.Errorf("--once = %v, want a memory limit in\n%s", err, out)
	}
}

// TestLeftMemory checks that limits of a previous agent are undone even without memory throttling, but not by a dry run.
func TestLeftMemory(t *testing.T) {
	m := newHostFixture(t)
	state := t.TempDir()

	layout, err := cgroup.Detect(host.Root(m.dir))
	if err != nil {
		t.Fatal(err)
	}

	journal, err := act.OpenJournal(filepath.Join(state, memoryFile), layout, m.tree)
	if err != nil {
		t.Fatal(err)
	}

	group := hogGroup + "/" + containerID("2")
	if err := journal.Change(act.Unit{Key: "memory/x", Changes: []act.Change{{Group: group, File: cgroup.FileHigh, Value: "104857600"}}}); err != nil {
		t.Fatal(err)
	}

	high := func() string {
		t.Helper()

		content, err := os.ReadFile(filepath.Join(m.tree.Dir, group, cgroup.FileHigh))
		if err != nil {
			t.Fatal(err)
		}

		return strings.TrimSpace(string(content))
	}

	if _, _, err := newParts(t, m, "--dry-run", "--state-dir="+state); err != nil || high() != "104857600" {
		t.Errorf("the start of a dry run = %v with limit %s, want nil and no change", err, high())
	}
	if _, _, err := newParts(t, m, "--enforce=cpu-throttle", "--state-dir="+state); err != nil || high() != "max" {
		t.Errorf("the start of another agent = %v with limit %s, want nil and max", err, high())
	}

	// Nothing of an agent that has ended is left by --cleanup, and its record stays while a change cannot be undone.
	if err := journal.Change(act.Unit{Key: "memory/y", Changes: []act.Change{{Group: group, File: cgroup.FileHigh, Value: "104857600"}}}); err != nil {
		t.Fatal(err)
	}

	o, _, err := parse(t, "--cleanup", "--host-root="+m.dir, "--state-dir="+state)
	if err != nil {
		t.Fatal(err)
	}

	var out strings.Builder
	if err := o.cleanUp(logr.Discard(), failingWriter{}, &out); err == nil || high() != "104857600" {
		t.Errorf("cleanUp with rejected writes = %v with limit %s, want an error and no change", err, high())
	}
	if err := o.cleanUp(logr.Discard(), m.tree, &out); err != nil || high() != "max" || out.String() != "undid 1 changes and removed "+state+"\n" {
		t.Errorf("cleanUp = %v with limit %s and output %q, want nil, max and one undone change", err, high(), out.String())
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state directory: %v", err)
	}

	empty := filepath.Join(m.dir, emptyDirectory)
	if err := os.MkdirAll(empty, 0o700); err != nil {
		t.Fatal(err)
	}

	if err := o.cleanUp(logr.Discard(), m.tree, &out); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := os.Stat(empty); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory that hides the kubelet's keys: %v", err)
	}
}

// failingWriter fails to write all files.
type failingWriter struct{}

func (failingWriter) Write(string, string) error { return errors.New("read-only") }
