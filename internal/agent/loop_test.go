// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/testbed/simnode/kernel"
)

const (
	hogGroup = "kubepods/besteffort/pod22222222-2222-2222-2222-222222222222"
	webGroup = "kubepods/pod11111111-1111-1111-1111-111111111111"
)

// hostFixture is a fake node of four cores with a web server and a hog.
type hostFixture struct {
	dir        string
	tree       *kernel.Tree
	web, hog   float64 // demands
	used       float64 // used time
	busy, idle float64 // ticks
	now        time.Time
}

func containerID(n string) string { return strings.Repeat(n, 64) }

func newHostFixture(t *testing.T) *hostFixture {
	t.Helper()

	m := &hostFixture{dir: t.TempDir(), now: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), busy: 1000, idle: 1000}
	m.tree = &kernel.Tree{Dir: filepath.Join(m.dir, "sys/fs/cgroup")}
	for _, g := range []string{webGroup + "/" + containerID("1"), hogGroup + "/" + containerID("2")} {
		if err := m.tree.Make(g); err != nil {
			t.Fatal(err)
		}
	}

	m.write(t, "sys/fs/cgroup/cgroup.controllers", "cpu\n")
	m.write(t, "proc/stat", "")
	return m
}

func (m *hostFixture) write(t *testing.T, path, content string) {
	t.Helper()

	file := filepath.Join(m.dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run advances the clock by a second.
func (m *hostFixture) run(t *testing.T) time.Time {
	t.Helper()

	m.now = m.now.Add(time.Second)
	m.used = 0
	for group, wants := range map[string]float64{webGroup + "/" + containerID("1"): m.web, hogGroup + "/" + containerID("2"): m.hog} {
		got, err := m.tree.Run(group, wants, time.Second)
		if err != nil {
			t.Fatal(err)
		}

		m.used += got
	}

	m.busy += 100 * m.used
	m.idle += 100 * (4 - m.used)
	cpu := fmt.Sprintf("%.0f 0 0 %.0f", m.busy, m.idle)
	m.write(t, "proc/stat", "cpu "+cpu+"\ncpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\ncpu3 0 0 0 0\n")

	return m.now
}

func (m *hostFixture) hogsLimit(t *testing.T) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(m.tree.Dir, hogGroup, containerID("2"), "cpu.max"))
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimSpace(string(content))
}

// ownedBy returns the reference of a controller.
func ownedBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(kind + name), Controller: new(true)}}
}

func podOn(uid, name, id string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(uid), Labels: map[string]string{"app": name}, OwnerReferences: ownedBy("ReplicaSet", name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + id}}},
	}
}

// Rules of the fixture: only the hog may be throttled.
const rules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: mixed}
spec:
  rules:
  - {name: cpu, avoidanceThreshold: 2, restoreThreshold: 3, actionName: calm-down, metricRule: {name: cpu_total_utilization, value: 75}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: calm-down}
spec: {coolDownSeconds: 60, throttle: {cpuThrottle: {minCPURatio: 10, stepCPURatio: 30}}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec: {allowedActions: [calm-down], labelSelector: {matchLabels: {app: hog}}}
`

func (m *hostFixture) loop(t *testing.T, stateDir string) *loop {
	t.Helper()

	view := known(t, rules,
		podOn("11111111-1111-1111-1111-111111111111", "web", containerID("1")), podOn("22222222-2222-2222-2222-222222222222", "hog", containerID("2")))
	p, l, _ := fixture{m.dir, stateDir, clocktesting.NewFakeClock(m.now), m.tree, view}.agent(t, enforceThrottle)
	t.Cleanup(func() {
		if err := (undoOnStop{p.changes, p.reporter, p.restart.kept}).Run(ended(t)); err != nil {
			t.Error(err)
		}
	})

	return l
}

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestLoop checks the path from files to decisions to files: the hog is throttled two measurements after the breach until the node is
// below the threshold, and restored when the node is calm.
func TestLoop(t *testing.T) {
	m := newHostFixture(t)
	l := m.loop(t, t.TempDir())
	m.web, m.hog = 1, 0.5
	for range 3 {
		l.tick(m.run(t))
	}

	if got := m.hogsLimit(t); got != "max 100000" {
		t.Fatalf("on a calm node hog's limit is %s, want none", got)
	}

	m.hog = 3
	l.tick(m.run(t))

	if got := m.hogsLimit(t); got != "max 100000" {
		t.Errorf("after one measurement hog's limit is %s, want none", got)
	}

	l.tick(m.run(t))
	if got := m.hogsLimit(t); got == "max 100000" {
		t.Error("after two measurements hog has no limit, want one")
	}

	for range 5 {
		l.tick(m.run(t))
	}

	if m.used > 3 {
		t.Errorf("%g of 4 cores are used, want 75 %% at most; the hog's limit is %s", m.used, m.hogsLimit(t))
	}

	m.web = 0.1
	for range 30 {
		l.tick(m.run(t))
	}

	// 0.1 + 3 cores would exceed the threshold again, so the hog gets the headroom.
	if m.used > 3 || m.used < 2.7 {
		t.Errorf("%g of 4 cores are in use with hog's limit %s, want 2.7 to 3", m.used, m.hogsLimit(t))
	}

	m.hog = 0.2
	for range 60 {
		l.tick(m.run(t))
	}

	if got := m.hogsLimit(t); got != "max 100000" {
		t.Errorf("on a calm node hog's limit is %s, want it restored to none", got)
	}
}

// TestNextStartUndoes checks that the next agent restores a hog throttled by a killed one.
func TestNextStartUndoes(t *testing.T) {
	m := newHostFixture(t)
	state := t.TempDir()

	l := m.loop(t, state)
	m.web, m.hog = 1, 3
	for range 5 {
		l.tick(m.run(t))
	}

	if got := m.hogsLimit(t); got == "max 100000" {
		t.Fatal("hog has no limit, want one")
	}

	m.loop(t, state)
	if got := m.hogsLimit(t); got != "max 100000" {
		t.Errorf("after the next start hog's limit is %s, want none", got)
	}
}

// TestForeignLimit checks that a limit set by another process is kept and the pod's weight is restored at once.
func TestForeignLimit(t *testing.T) {
	m := newHostFixture(t)
	l := m.loop(t, t.TempDir())
	weight := func() string {
		content, err := os.ReadFile(filepath.Join(m.tree.Dir, hogGroup, cgroup.FileWeight))
		if err != nil {
			t.Fatal(err)
		}

		return strings.TrimSpace(string(content))
	}

	before := weight()
	m.web, m.hog = 1, 3
	for range 5 {
		l.tick(m.run(t))
	}

	if weight() == before || m.hogsLimit(t) == "max 100000" {
		t.Fatalf("weight %s, limit %s; want both lowered", weight(), m.hogsLimit(t))
	}

	m.hog = 0.2
	if err := m.tree.Write(filepath.Join(m.tree.Dir, hogGroup, containerID("2"), cgroup.FileMax), "300000 100000"); err != nil {
		t.Fatal(err)
	}

	l.tick(m.run(t))
	if weight() != before || m.hogsLimit(t) != "300000 100000" {
		t.Errorf("weight %s, want %s; limit %s", weight(), before, m.hogsLimit(t))
	}
}

// TestRunLoop runs the command's loop on a recorded host until its context ends.
func TestRunLoop(t *testing.T) {
	m := newHostFixture(t)
	m.run(t)
	o := NewOptions()
	o.BindAddress = "127.0.0.1:0"
	o.HostRoot = m.dir
	o.DryRun = true

	o.Cluster.Rules = "testdata/rules.yaml"
	o.Cluster.Pods = "testdata/pods.yaml"
	if err := o.Validate().ToAggregate(); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	clk := clocktesting.NewFakeClock(m.now)
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o, clk, nil) }()

	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return clk.HasWaiters(), nil
	}); err != nil {
		t.Error("the loop does not wait for its next tick: ", err)
	}

	for range 15 {
		clk.Step(time.Second)
	}

	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run does not end within a minute, want it to end with its context")
	}
}
