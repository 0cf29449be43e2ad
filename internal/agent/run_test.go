// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/heartbeat"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
)

// newParts returns a wired agent that does not run.
func newParts(t *testing.T, m *hostFixture, flags ...string) (environment, []Manager, error) {
	t.Helper()

	o, _, err := parse(t, append([]string{"--host-root=" + m.dir, "--state-dir=" + t.TempDir(), "--bind-address=127.0.0.1:0", "--node-labels=pool=mixed"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}

	layout, err := cgroup.Detect(o.hostRoot())
	if err != nil {
		t.Fatal(err)
	}

	clk := clocktesting.NewFakeClock(m.now)
	p := environment{Options: o, log: logr.Discard(), clock: clk, layout: layout, heartbeats: heartbeat.New(clk), registry: prometheus.NewRegistry(), latest: &observe.Latest{}}

	list, err := p.managers(t.Context(), m.tree)
	for _, manager := range list {
		if s, ok := manager.(interface{ Close() }); ok {
			t.Cleanup(s.Close)
		}
	}

	return p, list, err
}

func names(list []Manager) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Name())
	}

	return strings.Join(out, " ")
}

// TestJournalBeforeFirstState checks that the host is not changed while it is unknown whether Crane is paused.
func TestJournalBeforeFirstState(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	_, list, err := newParts(t, newHostFixture(t), "--node-labels=", "--kubeconfig="+kubeconfig, "--enforce="+enforceThrottle)
	if err != nil {
		t.Fatal(err)
	}

	i := slices.IndexFunc(list, func(m Manager) bool { return m.Name() == "undo" })
	if undo, ok := list[max(i, 0)].(undoOnStop); !ok || !undo.journal.Paused() {
		t.Errorf("the managers are %s, want undo among them with a paused journal", names(list))
	}
}

// TestOrder checks the start order: first managers that others need, then undo, last those that change the node.
func TestOrder(t *testing.T) {
	m := newHostFixture(t)
	for want, flags := range map[string][]string{
		"http kubelet-socket water-marks features pod-resource qos":                                {"--dry-run"},
		"http kubelet-socket water-marks features qos":                                             {"--dry-run", "--feature-gates=PodResource=false"},
		"http kubelet-socket undo water-marks features pod-resource qos":                           {"--enforce=cpu-throttle"},
		"http kubelet-socket undo water-marks features topology cpu-manager undo pod-resource qos": {"--enforce=cpu-manager,pod-resource", "--feature-gates=NodeResourceTopology=true,CraneCPUManager=true"},
		"http kubelet-socket audit water-marks features pod-resource qos":                          {"--dry-run", "--audit-file=" + filepath.Join(t.TempDir(), "audit")},
	} {
		p, list, err := newParts(t, m, flags...)
		if err != nil {
			t.Fatal(err)
		}

		if got := names(list); got != want {
			t.Errorf("%v: %s, want %s", flags, got, want)
		}
		if p.needsJournal() != slices.Contains(flags, "--enforce=cpu-throttle") && !strings.Contains(want, "undo") {
			t.Errorf("%v: needsJournal() = %t, want it only for --enforce=cpu-throttle", flags, p.needsJournal())
		}
	}
}

// TestCannotStart checks that a wrong host or flag is reported before any part runs.
func TestCannotStart(t *testing.T) {
	m := newHostFixture(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("not a policy"), 0o600); err != nil {
		t.Fatal(err)
	}

	for want, flags := range map[string][]string{
		"--bind-address":       {"--dry-run", "--bind-address=" + taken.Addr().String()},
		"--state-dir":          {"--enforce=cpu-throttle", "--state-dir=" + filepath.Join(file, "below")},
		"--policy-config-path": {"--dry-run", "--policy-config-path=" + file},
		"--rules":              {"--dry-run", "--rules=" + filepath.Join(t.TempDir(), "missing")},
	} {
		if _, _, err := newParts(t, m, flags...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", flags, err, want)
		}
	}

	o, _, err := parse(t, "--dry-run", "--host-root="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	if err := runAgent(t.Context(), o, clocktesting.NewFakeClock(m.now), act.KernelFileWriter{}); !errors.Is(err, cgroup.ErrNoCgroups) {
		t.Errorf("a host without cgroups: %v", err)
	}
}

// TestUndoesAtTheEnd checks that a stopped agent undoes all throttles before it ends.
func TestUndoesAtTheEnd(t *testing.T) {
	m := newHostFixture(t)
	m.web, m.hog = 1, 3
	dir := t.TempDir()
	rulesFile := filepath.Join(dir, "rules.yaml")
	podsFile := filepath.Join(dir, "pods.yaml")
	var pods strings.Builder
	pods.WriteString("kind: List\nitems:\n")

	for n, name := range map[string]string{"1": "web", "2": "hog"} {
		uid := map[string]string{"1": "11111111-1111-1111-1111-111111111111", "2": "22222222-2222-2222-2222-222222222222"}[n]
		pods.WriteString("- {kind: Pod, metadata: {namespace: \"n\", name: " + name + ", uid: " + uid + ", labels: {app: " + name + "}}, spec: {containers: [{name: main}]},\n" +
			"   status: {phase: Running, containerStatuses: [{name: main, containerID: \"containerd://" + containerID(n) + "\"}]}}\n")
	}

	for path, content := range map[string]string{rulesFile: rules, podsFile: pods.String()} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	m.run(t)
	p, list, err := newParts(t, m, "--enforce=cpu-throttle", "--bind-address=0", "--rules="+rulesFile, "--pods="+podsFile)
	if err != nil {
		t.Fatal(err)
	}

	clk, ok := p.clock.(*clocktesting.FakeClock)
	if !ok {
		t.Fatalf("the clock is a %T, want a fake one", p.clock)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- managerGroup{log: p.log, clock: clk, heartbeats: p.heartbeats, stopTimeout: time.Minute}.run(ctx, list)
	}()
	acted := func() bool { return lastActed(t, p.registry) == float64(clk.Now().Unix()) }
	until(t, "the first tick", acted)

	until(t, "the hog is throttled", func() bool {
		m.run(t) // while the test does not read
		clk.Step(time.Second)
		until(t, "the next tick", acted)

		return m.hogsLimit(t) != "max 100000"
	})

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := m.hogsLimit(t); got != "max 100000" {
		t.Errorf("at the end the limit is %s, want none", got)
	}
}

// lastActed returns the time of the loop's last tick in seconds since 1970.
func lastActed(t *testing.T, from prometheus.Gatherer) float64 {
	t.Helper()

	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "crane_craneAgent_last_activity" && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == "ActionExecutor" }) {
				return m.GetGauge().GetValue()
			}
		}
	}

	return 0
}

// TestTwoAgents checks that a second agent on the same state directory fails to start until the first has ended.
func TestTwoAgents(t *testing.T) {
	m := newHostFixture(t)
	m.run(t)
	flags := []string{"--host-root=" + m.dir, "--state-dir=" + t.TempDir(), "--bind-address=0", "--node-labels=pool=mixed", "--enforce=cpu-throttle"}

	start := func() (done chan error, end func()) {
		o, _, err := parse(t, flags...)
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		clk := clocktesting.NewFakeClock(m.now)
		done = make(chan error, 1)
		go func() { done <- runAgent(ctx, o, clk, m.tree) }()
		until(t, "the agent runs or has ended", func() bool { return clk.HasWaiters() || len(done) > 0 })

		return done, cancel
	}

	first, end := start()
	second, endSecond := start()
	defer endSecond()

	if len(second) == 0 {
		t.Error("a second agent runs, want an error")
		endSecond()
	}

	if err := <-second; err == nil || !strings.Contains(err.Error(), "--state-dir") || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("the second one: %v", err)
	}

	end()
	if err := <-first; err != nil {
		t.Error(err)
	}

	third, end := start()
	if len(third) > 0 {
		t.Errorf("the next agent ended with %v, want it to run", <-third)
	}

	end()
	if err := <-third; err != nil {
		t.Error(err)
	}
}
