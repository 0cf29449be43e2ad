// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/qos"
)

const uid = "11111111-1111-1111-1111-111111111111"

// fixture is a node with a simulated kernel and one pod with the containers 1, 2 and 3.
type fixture struct {
	t             *testing.T
	v1            bool
	dir           string
	tree          *kernel.Tree
	layout        cgroup.Layout
	latest        *observe.Latest
	observe       *observe.Observer
	now           time.Time
	pods          []*corev1.Pod
	actions       []report.Action
	journal       *act.Journal
	memoryJournal *act.Journal
	files         act.FileWriter
	*Manager
}

func (m *fixture) State() *cluster.State { return &cluster.State{Pods: m.pods, KnowsPods: true} }
func (m *fixture) Node() *corev1.Node    { return nil }
func (m *fixture) Pods() []*corev1.Pod   { return m.pods }
func (m *fixture) Rules() ruleset.Set    { return ruleset.Set{} }

const podGroup = "kubepods/besteffort/pod" + uid

func containerGroup(container string) string { return podGroup + "/" + containerID(container) }

func newFixture(t *testing.T, v1 bool, pods ...*corev1.Pod) *fixture {
	t.Helper()

	m := &fixture{t: t, v1: v1, dir: t.TempDir(), latest: &observe.Latest{}, pods: pods, now: time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)}
	base := filepath.Join(m.dir, "sys/fs/cgroup")
	m.tree = &kernel.Tree{Dir: base}
	if v1 {
		m.tree = &kernel.Tree{Dir: filepath.Join(base, "cpu,cpuacct"), V1: true}
	}

	for _, c := range []string{"1", "2", "3"} {
		if err := m.tree.Make(containerGroup(c)); err != nil {
			t.Fatal(err)
		}
	}

	if !v1 {
		if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpuset cpu memory\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var err error
	if m.layout, err = cgroup.Detect(host.Root(m.dir)); err != nil {
		t.Fatal(err)
	}

	m.observe = observe.New(host.Root(m.dir), m.layout)
	t.Cleanup(m.observe.Close)
	m.files = m.tree
	m.startAgent(true)

	return m
}

// startAgent starts an agent.
func (m *fixture) startAgent(enforce bool) {
	m.t.Helper()

	var err error
	if m.journal, err = act.OpenJournal(filepath.Join(m.dir, "changes.json"), m.layout, m.files); err != nil {
		m.t.Fatal(err)
	}

	if m.memoryJournal, err = act.OpenJournal(filepath.Join(m.dir, "memory.json"), m.layout, m.files); err != nil {
		m.t.Fatal(err)
	}

	c := Config{
		View: m, Latest: m.latest, Layout: m.layout, Clock: clocktesting.NewFakeClock(m.now), Log: logr.Discard(), Beat: func(string) {},
		Report: func(a report.Action) { m.actions = append(m.actions, a) },
	}

	if enforce {
		c.Journal, c.MemoryJournal = m.journal, m.memoryJournal
	}
	m.Manager = New(c)
}

func (m *fixture) advance() {
	m.now = m.now.Add(reconcileInterval)
	m.latest.Publish(m.observe.Collect(m.now))
	m.reconcile()
}

// readGroupFile returns the content of a file of a group.
func (m *fixture) readGroupFile(group, name string) string {
	m.t.Helper()

	path, err := m.layout.SettingFile(group, name)
	if err != nil {
		m.t.Fatal(err)
	}

	content, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}

	return strings.TrimSpace(string(content))
}

func (m *fixture) expectFiles(group string, files map[string]string) {
	m.t.Helper()

	for name, want := range files {
		if got := m.readGroupFile(group, name); got != want {
			m.t.Errorf("%s of %s is %q, want %q", name, group[len("kubepods/"):][:min(20, len(group)-9)], got, want)
		}
	}
}

func twoContainerPod() *corev1.Pod {
	return newPod(uid, newContainer("1", "elastic-cpu=2", "elastic-memory=1Gi"), newContainer("2", "elastic-cpu=1", "elastic-memory=512Mi"))
}

// TestLimits checks that limits are set once and restored at the end.
func TestLimits(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		m := newFixture(t, v1, twoContainerPod())
		before := m.readAllSettings()
		m.advance()

		check := func() {
			t.Helper()

			if v1 {
				m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileQuotaV1: "200000", cgroup.FileSharesV1: "2048", cgroup.FileMemoryV1: "1073741824"})
				m.expectFiles(containerGroup("2"), map[string]string{cgroup.FileQuotaV1: "100000", cgroup.FileSharesV1: "1024", cgroup.FileMemoryV1: "536870912"})
				m.expectFiles(podGroup, map[string]string{cgroup.FileQuotaV1: "300000", cgroup.FileSharesV1: "3072", cgroup.FileMemoryV1: "1610612736", cgroup.FileIdle: "0"})

				return
			}

			m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileMax: "200000 100000", cgroup.FileWeight: "79", cgroup.FileMemory: "1073741824", cgroup.FileIdle: "0", cgroup.FileHigh: "max"})
			m.expectFiles(containerGroup("2"), map[string]string{cgroup.FileMax: "100000 100000", cgroup.FileWeight: "39", cgroup.FileMemory: "536870912"})
			m.expectFiles(podGroup, map[string]string{cgroup.FileMax: "300000 100000", cgroup.FileIdle: "1", cgroup.FileMemory: "1610612736"})
		}

		check()
		if m.readGroupFile(containerGroup("3"), m.quotaFile()) != m.noQuota() {
			t.Error("a container without elastic requests has a CPU limit, want none")
		}

		did := len(m.actions)
		m.advance()
		m.advance()
		check()

		// On v1 the shares of one core are the default.
		if want := map[bool]int{true: 8, false: 9}[v1]; did != want || len(m.actions) != did {
			t.Errorf("v1 %t: %d actions, then %d more: %+v; want %d, then none", v1, did, len(m.actions)-did, m.actions, want)
		}
		// Changes by others are reverted.
		if err := m.tree.Write(m.settingPath(containerGroup("2"), m.quotaFile()), m.noQuota()); err != nil {
			t.Fatal(err)
		}

		m.advance()
		check()
		m.stopAgent()

		if after := m.readAllSettings(); after != before {
			t.Errorf("v1 %t: at the end settings are\n%s\nwant\n%s", v1, after, before)
		}
	}
}

func (m *fixture) quotaFile() string {
	if m.v1 {
		return cgroup.FileQuotaV1
	}

	return cgroup.FileMax
}

func (m *fixture) noQuota() string {
	if m.v1 {
		return "-1"
	}

	return "max 100000"
}

func (m *fixture) settingPath(group, file string) string {
	m.t.Helper()

	path, err := m.layout.SettingFile(group, file)
	if err != nil {
		m.t.Fatal(err)
	}

	return path
}

// readAllSettings formats all settings of all groups.
func (m *fixture) readAllSettings() string {
	names := []string{cgroup.FileMax, cgroup.FileWeight, cgroup.FileIdle, cgroup.FileHigh, cgroup.FileMemory}
	if m.v1 {
		names = []string{cgroup.FileQuotaV1, cgroup.FileSharesV1, cgroup.FileIdle, cgroup.FileMemoryV1}
	}

	var out strings.Builder
	for _, g := range []string{podGroup, containerGroup("1"), containerGroup("2"), containerGroup("3")} {
		for _, name := range names {
			fmt.Fprintf(&out, "%s %s: %s\n", g[len(g)-4:], name, m.readGroupFile(g, name))
		}
	}

	return out.String()
}

// stopAgent stops the agent in order.
func (m *fixture) stopAgent() {
	m.t.Helper()

	ctx, cancel := context.WithCancel(m.t.Context())
	cancel()

	if err := errors.Join(m.Run(ctx), m.memoryJournal.UndoAll(), m.journal.UndoAll()); err != nil {
		m.t.Fatal(err)
	}
}

// TestThrottleStays checks that a rule's throttle works below the limit and is restored up to it, in any order.
func TestThrottleStays(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, throttledFirst := range []bool{false, true} {
			m := newFixture(t, v1, twoContainerPod())
			low := map[bool]string{true: "50000", false: "50000 100000"}[v1]
			limit := map[bool]string{true: "200000", false: "200000 100000"}[v1]
			throttler := act.NewThrottler(m.layout, m.journal)

			original := qos.Quota(2000)
			if throttledFirst {
				original = qos.Unlimited
			} else {
				m.advance()
			}

			if err := throttler.Throttle(qos.Throttle{ContainerID: containerID("1"), From: original, To: 500, Original: original}, containerGroup("1")); err != nil {
				t.Fatal(err)
			}

			for range 3 {
				m.advance()
				m.expectFiles(containerGroup("1"), map[string]string{m.quotaFile(): low})
			}

			if err := throttler.Throttle(qos.Throttle{ContainerID: containerID("1"), From: 500, To: original, Original: original}, containerGroup("1")); err != nil {
				t.Fatal(err)
			}

			m.advance()
			m.expectFiles(containerGroup("1"), map[string]string{m.quotaFile(): limit})
			m.stopAgent()
			m.expectFiles(containerGroup("1"), map[string]string{m.quotaFile(): m.noQuota()})
		}
	}
}

// TestMemoryThrottleStays checks the same for memory.high.
func TestMemoryThrottleStays(t *testing.T) {
	m := newFixture(t, false, twoContainerPod())
	unit := act.Unit{Key: "memory/1", Changes: []act.Change{{Group: containerGroup("1"), File: cgroup.FileHigh, Value: "524288000"}}}
	if err := m.memoryJournal.Change(unit); err != nil {
		t.Fatal(err)
	}

	m.advance()
	m.advance()
	m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileMemory: "1073741824", cgroup.FileHigh: "524288000"})

	if err := m.memoryJournal.Undo(unit.Key); err != nil {
		t.Fatal(err)
	}

	m.advance()
	m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileMemory: "1073741824", cgroup.FileHigh: "max"})
}

// TestKilled checks that the next agent undoes the changes of a killed one.
func TestKilled(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		m := newFixture(t, v1, twoContainerPod())
		before := m.readAllSettings()
		m.advance()

		throttler := act.NewThrottler(m.layout, m.journal)
		if err := throttler.Throttle(qos.Throttle{ContainerID: containerID("1"), From: 2000, To: 500, Original: 2000}, containerGroup("1")); err != nil {
			t.Fatal(err)
		}

		m.startAgent(true)
		if err := errors.Join(m.journal.UndoAll(), m.memoryJournal.UndoAll()); err != nil {
			t.Fatal(err)
		}

		if after := m.readAllSettings(); after != before {
			t.Errorf("v1 %t: after UndoAll settings are\n%s\nwant\n%s", v1, after, before)
		}
	}
}

// TestUsesMore checks that a container above its memory limit gets memory.high first and the limit later, and is not killed.
func TestUsesMore(t *testing.T) {
	m := newFixture(t, false, twoContainerPod())
	if err := m.tree.Attach(containerGroup("1"), 4711); err != nil {
		t.Fatal(err)
	}

	if _, err := m.tree.Tick(time.Second, []kernel.Load{{Group: containerGroup("1"), Anon: 2 * gi}}); err != nil {
		t.Fatal(err)
	}

	m.advance()
	m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileMemory: "max", cgroup.FileHigh: "1073741824"})
	m.advance()
	m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileMemory: "max", cgroup.FileHigh: "1073741824"})

	if got, err := m.tree.Tick(time.Second, []kernel.Load{{Group: containerGroup("1"), Anon: 100 * mi}}); err != nil || got[0].Killed {
		t.Fatalf("the step of the kernel = %+v, %v, want no OOM kill", got, err)
	}

	m.advance()
	m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileMemory: "1073741824", cgroup.FileHigh: "max"})
	m.stopAgent()
	m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileMemory: "max", cgroup.FileHigh: "max"})
}

// TestEachOnItsOwn checks that a waiting container and a refused write do not delay others.
func TestEachOnItsOwn(t *testing.T) {
	pod := newPod(uid, newContainer("4", "elastic-cpu=1"), newContainer("1", "elastic-cpu=2"), newContainer("2", "elastic-cpu=1"))
	pod.Status.ContainerStatuses[0].ContainerID = ""
	m := newFixture(t, false, pod)
	refused := 0

	m.files = filesFunc(func(file, value string) error {
		if strings.Contains(file, containerID("1")+"/"+cgroup.FileMax) {
			refused++
			return &os.PathError{Op: "write", Path: file, Err: syscall.EINVAL}
		}

		return m.tree.Write(file, value)
	})

	m.startAgent(true)
	m.advance()
	m.advance()
	m.expectFiles(containerGroup("1"), map[string]string{cgroup.FileMax: "max 100000", cgroup.FileWeight: "79"})
	m.expectFiles(containerGroup("2"), map[string]string{cgroup.FileMax: "100000 100000"})
	m.expectFiles(podGroup, map[string]string{cgroup.FileMax: "400000 100000", cgroup.FileIdle: "1"})

	failures := slices.DeleteFunc(slices.Clone(m.actions), func(a report.Action) bool { return a.Outcome != report.Failed })
	if refused < 2 || len(failures) != 1 || !strings.Contains(failures[0].Error, "invalid argument") {
		t.Errorf("%d writes were refused and reported as %+v, want at least 2 and one report", refused, failures)
	}

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.Manager)
	const want = `# HELP crane_agent_elastic_containers Containers that request elastic resources by state: known cgroup, or waiting for their start.
# TYPE crane_agent_elastic_containers gauge
crane_agent_elastic_containers{state="known"} 2
crane_agent_elastic_containers{state="waiting"} 0
# HELP crane_craneAgent_pod_resource_error_total Limits of pods on elastic resources that could not be read or written.
# TYPE crane_craneAgent_pod_resource_error_total counter
crane_craneAgent_pod_resource_error_total{step="quota",subcomponent="pod-resource"} 2
`

	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "crane_agent_elastic_containers", "crane_craneAgent_pod_resource_error_total"); err != nil {
		t.Error(err)
	}
}

type filesFunc func(file, value string) error

func (f filesFunc) Write(file, value string) error { return f(file, value) }

// TestGone checks that units of removed groups are dropped and those of existing groups restored.
func TestGone(t *testing.T) {
	m := newFixture(t, false, twoContainerPod())
	m.advance()

	if n := len(m.journal.Entries()); n == 0 {
		t.Fatal("the journal has no entries, want those of the pod")
	}

	for _, c := range []string{"1", "2"} {
		if err := m.tree.Remove(containerGroup(c)); err != nil {
			t.Fatal(err)
		}
	}

	m.advance() // the pod is still listed
	m.pods = nil
	for range reconcilesPerCleanup {
		m.advance()
	}

	if left := append(m.journal.Entries(), m.memoryJournal.Entries()...); len(left) > 0 || len(m.reported) > 0 {
		t.Errorf("after the pod is gone entries are %+v, reports %v; want none", left, m.reported)
	}
	m.expectFiles(podGroup, map[string]string{cgroup.FileMax: "max 100000", cgroup.FileIdle: "0", cgroup.FileWeight: "100"})
}

// TestDryRun checks that a dry run reports each change once.
func TestDryRun(t *testing.T) {
	m := newFixture(t, false, twoContainerPod())
	before := m.readAllSettings()
	m.startAgent(false)
	m.advance()
	m.advance()

	if after := m.readAllSettings(); after != before {
		t.Errorf("after a dry run settings are\n%s\nwant\n%s", after, before)
	}
	if len(m.actions) != 9 || slices.ContainsFunc(m.actions, func(a report.Action) bool { return a.Outcome != report.NotEnforced }) {
		t.Errorf("a dry run reported %d actions: %+v; want 9 that are not enforced", len(m.actions), m.actions)
	}

	m.stopAgent()
}

// TestFullDisk checks that nothing is changed without a working journal.
func TestFullDisk(t *testing.T) {
	m := newFixture(t, false, twoContainerPod())
	before := m.readAllSettings()

	journal, err := act.OpenJournal(filepath.Join(m.dir, "not/there"), m.layout, m.files)
	if err != nil {
		t.Fatal(err)
	}

	m.Journal = journal
	m.MemoryJournal = journal
	m.advance()

	if after := m.readAllSettings(); after != before {
		t.Errorf("without a journal settings are\n%s\nwant\n%s", after, before)
	}
	if len(m.actions) == 0 || m.actions[0].Outcome != report.Failed {
		t.Errorf("without a journal actions are %+v, want a failure", m.actions)
	}
	if !errors.Is(journal.Change(act.Unit{Key: "x/y", Changes: []act.Change{{Group: podGroup, File: cgroup.FileMax, Value: "1000 100000"}}}), act.ErrJournal) {
		t.Error("Change = nil, want ErrJournal of an unusable journal")
	}
}

// TestIdleOfPodResources checks that a pod that requests ordinary CPU as a whole keeps its weight and does not become idle.
func TestIdleOfPodResources(t *testing.T) {
	m := newFixture(t, false, withPodResources(newPod(uid, newContainer("1", "elastic-cpu=2"), newContainer("2")), "2", "1Gi"))
	if err := m.tree.Write(m.settingPath(podGroup, cgroup.FileWeight), "79"); err != nil { // as the kubelet does for 2 CPUs
		t.Fatal(err)
	}

	m.advance()
	if idle, weight := m.readGroupFile(podGroup, cgroup.FileIdle), m.readGroupFile(podGroup, cgroup.FileWeight); idle != "0" || weight != "79" {
		t.Errorf("the pod has cpu.idle %s and cpu.weight %s, want 0 and 79", idle, weight)
	}
}
