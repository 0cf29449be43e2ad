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

// machine is a node in a fake kernel with one pod of containers 1, 2 and 3.
type machine struct {
	t       *testing.T
	v1      bool
	dir     string
	tree    *kernel.Tree
	layout  cgroup.Layout
	latest  *observe.Latest
	observe *observe.Observer
	now     time.Time
	pods    []*corev1.Pod
	done    []report.Action
	journal *act.Journal
	memory  *act.Journal
	files   act.Files
	*Manager
}

func (m *machine) State() *cluster.State { return &cluster.State{Pods: m.pods, KnowsPods: true} }
func (m *machine) Node() *corev1.Node    { return nil }
func (m *machine) Pods() []*corev1.Pod   { return m.pods }
func (m *machine) Rules() ruleset.Set    { return ruleset.Set{} }

const podGroup = "kubepods/besteffort/pod" + uid

func group(container string) string { return podGroup + "/" + id(container) }

func newMachine(t *testing.T, v1 bool, pods ...*corev1.Pod) *machine {
	t.Helper()
	m := &machine{t: t, v1: v1, dir: t.TempDir(), latest: &observe.Latest{}, pods: pods, now: time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)}
	base := filepath.Join(m.dir, "sys/fs/cgroup")
	m.tree = &kernel.Tree{Dir: base}
	if v1 {
		m.tree = &kernel.Tree{Dir: filepath.Join(base, "cpu,cpuacct"), V1: true}
	}
	for _, c := range []string{"1", "2", "3"} {
		if err := m.tree.Make(group(c)); err != nil {
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
	m.begin(true)
	return m
}

// begin is an agent that starts.
func (m *machine) begin(enforce bool) {
	m.t.Helper()
	var err error
	if m.journal, err = act.OpenJournal(filepath.Join(m.dir, "changes.json"), m.layout, m.files); err != nil {
		m.t.Fatal(err)
	}
	if m.memory, err = act.OpenJournal(filepath.Join(m.dir, "memory.json"), m.layout, m.files); err != nil {
		m.t.Fatal(err)
	}
	c := Config{
		View: m, Latest: m.latest, Layout: m.layout, Clock: clocktesting.NewFakeClock(m.now), Log: logr.Discard(), Beat: func(string) {},
		Did: func(a report.Action) { m.done = append(m.done, a) },
	}
	if enforce {
		c.Journal, c.Memory = m.journal, m.memory
	}
	m.Manager = New(c)
}

func (m *machine) step() {
	m.now = m.now.Add(reconcileEvery)
	m.latest.Publish(m.observe.Look(m.now))
	m.reconcile()
}

// file is what a file of a group holds.
func (m *machine) file(group, name string) string {
	m.t.Helper()
	path, err := m.layout.Setting(group, name)
	if err != nil {
		m.t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

func (m *machine) want(group string, files map[string]string) {
	m.t.Helper()
	for name, want := range files {
		if got := m.file(group, name); got != want {
			m.t.Errorf("%s of %s is %q, want %q", name, group[len("kubepods/"):][:min(20, len(group)-9)], got, want)
		}
	}
}

func onePod() *corev1.Pod {
	return podOf(uid, asks("1", "elastic-cpu=2", "elastic-memory=1Gi"), asks("2", "elastic-cpu=1", "elastic-memory=512Mi"))
}

// TestLimits: containers and their pod get what they asked for, once, and it is all put back.
func TestLimits(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		m := newMachine(t, v1, onePod())
		before := m.all()
		m.step()
		check := func() {
			t.Helper()
			if v1 {
				m.want(group("1"), map[string]string{cgroup.FileQuotaV1: "200000", cgroup.FileSharesV1: "2048", cgroup.FileMemoryV1: "1073741824"})
				m.want(group("2"), map[string]string{cgroup.FileQuotaV1: "100000", cgroup.FileSharesV1: "1024", cgroup.FileMemoryV1: "536870912"})
				m.want(podGroup, map[string]string{cgroup.FileQuotaV1: "300000", cgroup.FileSharesV1: "3072", cgroup.FileMemoryV1: "1610612736", cgroup.FileIdle: "0"})
				return
			}
			m.want(group("1"), map[string]string{cgroup.FileMax: "200000 100000", cgroup.FileWeight: "79", cgroup.FileMemory: "1073741824", cgroup.FileIdle: "0", cgroup.FileHigh: "max"})
			m.want(group("2"), map[string]string{cgroup.FileMax: "100000 100000", cgroup.FileWeight: "39", cgroup.FileMemory: "536870912"})
			m.want(podGroup, map[string]string{cgroup.FileMax: "300000 100000", cgroup.FileIdle: "1", cgroup.FileMemory: "1610612736"})
		}
		check()
		if m.file(group("3"), m.quota()) != m.none() {
			t.Error("a container that asks for nothing has a limit")
		}
		did := len(m.done)
		m.step()
		m.step()
		check()
		// v1's shares of one core are those that every group has.
		if want := map[bool]int{true: 8, false: 9}[v1]; did != want || len(m.done) != did {
			t.Errorf("v1 %t: %d actions, then %d more: %+v", v1, did, len(m.done)-did, m.done)
		}
		// Somebody else writes: it is brought back.
		if err := m.tree.Write(m.path(group("2"), m.quota()), m.none()); err != nil {
			t.Fatal(err)
		}
		m.step()
		check()
		m.end()
		if after := m.all(); after != before {
			t.Errorf("v1 %t: not all is put back:\n%s\nbefore:\n%s", v1, after, before)
		}
	}
}

func (m *machine) quota() string {
	if m.v1 {
		return cgroup.FileQuotaV1
	}
	return cgroup.FileMax
}

func (m *machine) none() string {
	if m.v1 {
		return "-1"
	}
	return "max 100000"
}

func (m *machine) path(group, file string) string {
	m.t.Helper()
	path, err := m.layout.Setting(group, file)
	if err != nil {
		m.t.Fatal(err)
	}
	return path
}

// all is everything that groups are set to.
func (m *machine) all() string {
	names := []string{cgroup.FileMax, cgroup.FileWeight, cgroup.FileIdle, cgroup.FileHigh, cgroup.FileMemory}
	if m.v1 {
		names = []string{cgroup.FileQuotaV1, cgroup.FileSharesV1, cgroup.FileIdle, cgroup.FileMemoryV1}
	}
	var out strings.Builder
	for _, g := range []string{podGroup, group("1"), group("2"), group("3")} {
		for _, name := range names {
			fmt.Fprintf(&out, "%s %s: %s\n", g[len(g)-4:], name, m.file(g, name))
		}
	}
	return out.String()
}

// end ends the agent in order.
func (m *machine) end() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	cancel()
	if err := errors.Join(m.Run(ctx), m.memory.UndoAll(), m.journal.UndoAll()); err != nil {
		m.t.Fatal(err)
	}
}

// TestThrottleStays: a throttle of a rule works below the limit, whoever came first, and gives back up to the limit.
func TestThrottleStays(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, throttledFirst := range []bool{false, true} {
			m := newMachine(t, v1, onePod())
			low, limit := map[bool]string{true: "50000", false: "50000 100000"}[v1], map[bool]string{true: "200000", false: "200000 100000"}[v1]
			throttler := act.NewThrottler(m.layout, m.journal)
			original := qos.Quota(2000)
			if throttledFirst {
				original = qos.Unlimited
			} else {
				m.step()
			}
			if err := throttler.Throttle(qos.Throttle{ContainerID: id("1"), From: original, To: 500, Original: original}, group("1")); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				m.step()
				m.want(group("1"), map[string]string{m.quota(): low})
			}
			if err := throttler.Throttle(qos.Throttle{ContainerID: id("1"), From: 500, To: original, Original: original}, group("1")); err != nil {
				t.Fatal(err)
			}
			m.step()
			m.want(group("1"), map[string]string{m.quota(): limit})
			m.end()
			m.want(group("1"), map[string]string{m.quota(): m.none()})
		}
	}
}

// TestMemoryThrottleStays: a rule that slows the growth of a container works below its limit, and gives back.
func TestMemoryThrottleStays(t *testing.T) {
	m := newMachine(t, false, onePod())
	unit := act.Unit{Key: "memory/1", Changes: []act.Change{{Group: group("1"), File: cgroup.FileHigh, Value: "524288000"}}}
	if err := m.memory.Change(unit); err != nil {
		t.Fatal(err)
	}
	m.step()
	m.step()
	m.want(group("1"), map[string]string{cgroup.FileMemory: "1073741824", cgroup.FileHigh: "524288000"})
	if err := m.memory.Undo(unit.Key); err != nil {
		t.Fatal(err)
	}
	m.step()
	m.want(group("1"), map[string]string{cgroup.FileMemory: "1073741824", cgroup.FileHigh: "max"})
}

// TestKilled: an agent that is killed, also while a rule throttles, is undone by the next one.
func TestKilled(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		m := newMachine(t, v1, onePod())
		before := m.all()
		m.step()
		throttler := act.NewThrottler(m.layout, m.journal)
		if err := throttler.Throttle(qos.Throttle{ContainerID: id("1"), From: 2000, To: 500, Original: 2000}, group("1")); err != nil {
			t.Fatal(err)
		}
		m.begin(true)
		if err := errors.Join(m.journal.UndoAll(), m.memory.UndoAll()); err != nil {
			t.Fatal(err)
		}
		if after := m.all(); after != before {
			t.Errorf("v1 %t: not all is undone:\n%s\nbefore:\n%s", v1, after, before)
		}
	}
}

// TestUsesMore: a container that holds more than its limit of memory is pressed, not killed, and limited when it holds less.
func TestUsesMore(t *testing.T) {
	m := newMachine(t, false, onePod())
	if err := m.tree.Attach(group("1"), 4711); err != nil {
		t.Fatal(err)
	}
	if _, err := m.tree.Tick(time.Second, []kernel.Load{{Group: group("1"), Anon: 2 * gi}}); err != nil {
		t.Fatal(err)
	}
	m.step()
	m.want(group("1"), map[string]string{cgroup.FileMemory: "max", cgroup.FileHigh: "1073741824"})
	m.step()
	m.want(group("1"), map[string]string{cgroup.FileMemory: "max", cgroup.FileHigh: "1073741824"})
	if got, err := m.tree.Tick(time.Second, []kernel.Load{{Group: group("1"), Anon: 100 * mi}}); err != nil || got[0].Killed {
		t.Fatalf("%+v, %v", got, err)
	}
	m.step()
	m.want(group("1"), map[string]string{cgroup.FileMemory: "1073741824", cgroup.FileHigh: "max"})
	m.end()
	m.want(group("1"), map[string]string{cgroup.FileMemory: "max", cgroup.FileHigh: "max"})
}

// TestEachOnItsOwn: a container that waits holds up no other, nor does one whose quota the kernel refuses.
func TestEachOnItsOwn(t *testing.T) {
	pod := podOf(uid, asks("4", "elastic-cpu=1"), asks("1", "elastic-cpu=2"), asks("2", "elastic-cpu=1"))
	pod.Status.ContainerStatuses[0].ContainerID = ""
	m := newMachine(t, false, pod)
	refused := 0
	m.files = filesFunc(func(file, value string) error {
		if strings.Contains(file, id("1")+"/"+cgroup.FileMax) {
			refused++
			return &os.PathError{Op: "write", Path: file, Err: syscall.EINVAL}
		}
		return m.tree.Write(file, value)
	})
	m.begin(true)
	m.step()
	m.step()
	m.want(group("1"), map[string]string{cgroup.FileMax: "max 100000", cgroup.FileWeight: "79"})
	m.want(group("2"), map[string]string{cgroup.FileMax: "100000 100000"})
	m.want(podGroup, map[string]string{cgroup.FileMax: "400000 100000", cgroup.FileIdle: "1"})
	failures := slices.DeleteFunc(slices.Clone(m.done), func(a report.Action) bool { return a.Outcome != report.Failed })
	if refused < 2 || len(failures) != 1 || !strings.Contains(failures[0].Err, "invalid argument") {
		t.Errorf("refused %d times, told of %+v", refused, failures)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.Manager)
	const want = `# HELP crane_agent_elastic_containers Containers that ask for elastic resources: those whose group is known, and those that have not started.
# TYPE crane_agent_elastic_containers gauge
crane_agent_elastic_containers{state="known"} 2
crane_agent_elastic_containers{state="waiting"} 0
# HELP crane_craneAgent_pod_resource_error_total Limits of pods on elastic resources that could not be written or read.
# TYPE crane_craneAgent_pod_resource_error_total counter
crane_craneAgent_pod_resource_error_total{step="quota",subcomponent="pod-resource"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "crane_agent_elastic_containers", "crane_craneAgent_pod_resource_error_total"); err != nil {
		t.Error(err)
	}
}

type filesFunc func(file, value string) error

func (f filesFunc) Write(file, value string) error { return f(file, value) }

// TestGone: what the journal holds of pods that are gone goes with them, and what a pod has that is still there is put back.
func TestGone(t *testing.T) {
	m := newMachine(t, false, onePod())
	m.step()
	if n := len(m.journal.Entries()); n == 0 {
		t.Fatal("nothing in the journal")
	}
	for _, c := range []string{"1", "2"} {
		if err := m.tree.Remove(group(c)); err != nil {
			t.Fatal(err)
		}
	}
	m.step() // the pod is still listed
	m.pods = nil
	for range cleanEvery {
		m.step()
	}
	if left := append(m.journal.Entries(), m.memory.Entries()...); len(left) > 0 || len(m.told) > 0 {
		t.Errorf("left %+v, told %v", left, m.told)
	}
	m.want(podGroup, map[string]string{cgroup.FileMax: "max 100000", cgroup.FileIdle: "0", cgroup.FileWeight: "100"})
}

// TestDryRun: it says once what it would write.
func TestDryRun(t *testing.T) {
	m := newMachine(t, false, onePod())
	before := m.all()
	m.begin(false)
	m.step()
	m.step()
	if after := m.all(); after != before {
		t.Errorf("writes:\n%s", after)
	}
	if len(m.done) != 9 || slices.ContainsFunc(m.done, func(a report.Action) bool { return a.Outcome != report.Would }) {
		t.Errorf("%d actions: %+v", len(m.done), m.done)
	}
	m.end()
}

// TestFullDisk: without a journal nothing is changed.
func TestFullDisk(t *testing.T) {
	m := newMachine(t, false, onePod())
	before := m.all()
	journal, err := act.OpenJournal(filepath.Join(m.dir, "not/there"), m.layout, m.files)
	if err != nil {
		t.Fatal(err)
	}
	m.Journal, m.Memory = journal, journal
	m.step()
	if after := m.all(); after != before {
		t.Errorf("writes:\n%s", after)
	}
	if len(m.done) == 0 || m.done[0].Outcome != report.Failed {
		t.Errorf("%+v", m.done)
	}
	if !errors.Is(journal.Change(act.Unit{Key: "x/y", Changes: []act.Change{{Group: podGroup, File: cgroup.FileMax, Value: "1000 100000"}}}), act.ErrJournal) {
		t.Error("the journal works")
	}
}
