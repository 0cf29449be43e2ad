// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/podresource"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/numa"
)

const (
	lifePods = 6
	// maxRefusals is the number of attempts of the kubelet within which the agent must have made way for a write.
	maxRefusals = 12
)

// violationError is a broken invariant.
type violationError struct{ text string }

func (e violationError) Error() string { return e.text }

// lifeOf is a node with a simulated kernel, kubelet and agent. The invariants after each event:
//   - a setting is the kubelet's or the target in the agent's journal, also if the kernel has scaled it;
//   - the value to restore is the kubelet's;
//   - no limit is below what the group's containers request in effect;
//   - every write of the kubelet succeeds, after some attempts at last, and that of a new container at once;
//   - nothing is written for a container that is gone;
//   - when the agent has stopped, everything is as the kubelet wrote it.
type lifeOf struct {
	t      *testing.T
	v1     bool
	dir    string
	state  string
	tree   *kernel.Tree
	layout cgroup.Layout
	clock  *clocktesting.FakeClock
	pods   map[int]*livePod
	lastID int
	// written holds the kubelet's values by group and file; refused counts the attempts of writes that were refused.
	written map[string]map[string]string
	refused map[string]int

	view       changingView
	agent      *wiredAgent
	loop       *loop
	memory     *act.Journal
	elastic    *podresource.Manager
	busy, idle float64
	web        float64 // load of another group
	cpus       int     // online ones
	ticks      int
}

// liveOnce lives through events and returns the first violation; empty for none.
func liveOnce(t *testing.T, v1 bool, events []event) (violation string) {
	t.Helper()

	dir := t.TempDir()

	defer func() {
		if r := recover(); r != nil {
			v, ok := r.(violationError)
			if !ok {
				panic(r)
			}
			violation = v.text
		}
	}()

	l := newLife(t, v1, dir)
	defer func() { l.loop.observer.Close() }()

	for i, e := range events {
		l.apply(e)
		l.pass(1 + e.choice%3)
		l.check(fmt.Sprintf("after event %d, %s", i, e))
	}

	l.stop("at the end")
	return ""
}

func (l *lifeOf) failf(format string, args ...any) {
	panic(violationError{fmt.Sprintf(format, args...)})
}

// must panics on errors of the test bed itself.
func (l *lifeOf) must(err error) {
	if err != nil {
		l.failf("test bed: %v", err)
	}
}

func newLife(t *testing.T, v1 bool, dir string) *lifeOf {
	t.Helper()

	l := &lifeOf{
		t: t, v1: v1, dir: dir, state: filepath.Join(dir, "state"), clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)),
		pods: map[int]*livePod{}, written: map[string]map[string]string{}, refused: map[string]int{}, busy: 1000, idle: 1000, web: 1, cpus: 4,
	}

	base := filepath.Join(dir, "sys/fs/cgroup")
	l.tree = &kernel.Tree{Dir: base}
	if v1 {
		l.tree = &kernel.Tree{Dir: filepath.Join(base, "cpu,cpuacct"), V1: true}
	}

	for _, group := range []string{"kubepods/burstable", "kubepods/besteffort", "other"} {
		l.makeGroup(group)
	}

	l.must(os.MkdirAll(filepath.Join(dir, "proc"), 0o755))
	l.writeStat()
	l.startAgent(true)

	return l
}

// makeGroup creates a group in which processes can run.
func (l *lifeOf) makeGroup(group string) {
	l.must(l.tree.Make(group))
	if !l.v1 {
		return
	}

	// A new v1 group has no CPUs and no memory until it is given those of its parent.
	parent := l.dirOfCPUs("")
	for part := range strings.SplitSeq(group, "/") {
		dir := filepath.Join(parent, part)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			l.must(err)

			if strings.TrimSpace(string(content)) != "" {
				continue
			}

			content, err = os.ReadFile(filepath.Join(parent, file))
			l.must(err)
			l.must(l.tree.Write(filepath.Join(dir, file), strings.TrimSpace(string(content))))
		}

		parent = dir
	}
}

// dirOfCPUs returns the directory of a v1 group with its CPUs.
func (l *lifeOf) dirOfCPUs(group string) string { return filepath.Join(l.tree.Dir, "../cpuset", group) }

// Write implements act.FileWriter: the agent writes no file of a group that is gone.
func (l *lifeOf) Write(file, value string) error {
	if _, err := os.Stat(filepath.Dir(file)); err != nil {
		l.failf("the agent writes %q to %s, whose group is gone", value, file)
	}

	return l.tree.Write(file, value)
}

func (l *lifeOf) startAgent(knowsPods bool) {
	l.publish(knowsPods)
	l.agent, l.loop, _ = fixture{l.dir, l.state, l.clock, l, &l.view}.agent(l.t, enforceThrottle)
	l.layout = l.agent.layout

	var err error
	l.memory, err = act.OpenJournal(filepath.Join(l.state, memoryFile), l.layout, l)
	l.must(err)
	l.must(l.memory.UndoAll())
	l.elastic = podresource.New(podresource.Config{
		View: &l.view, Latest: l.agent.latest, Layout: l.layout, Journal: l.agent.changes, MemoryJournal: l.memory,
		Clock: l.clock, Log: logr.Discard(), Beat: func(string) {}, Report: func(report.Action) {},
	})
}

// publish sends the pods to the agent, as the API server does.
func (l *lifeOf) publish(knows bool) {
	var pods []*corev1.Pod
	for _, i := range slices.Sorted(maps.Keys(l.pods)) {
		pods = append(pods, l.pods[i].object())
	}

	l.view.set(l.t, pods...)
	if !knows {
		l.view.Static = cluster.NewStatic(cluster.State{IgnoreNodeLabels: true})
	}
}

func (l *lifeOf) apply(e event) {
	p := l.pods[e.pod]
	if p == nil && slices.Contains([]string{"delete", "exit", "crash", "kill", "load", "resize", "resize-pod", "debug", "scale"}, e.kind) {
		e.kind = "create"
	}

	switch e.kind {
	case "create":
		l.create(e)
	case "delete":
		for len(p.containers) > 0 {
			l.end(p, 0)
		}
		l.must(l.tree.Remove(p.group))
		delete(l.written, p.group)
		delete(l.pods, e.pod)
	case "exit", "kill":
		l.restart(p, e.choice%len(p.containers))
	case "crash":
		for range 3 {
			l.restart(p, e.choice%len(p.containers))
			l.pass(1)
			l.check("in " + e.String())
		}
	case "load":
		p.containers[e.choice%len(p.containers)].cpu = float64(e.choice%7) / 2
	case "busy":
		l.web = 2.9
	case "calm":
		l.web = 0.2
	case "resize":
		l.resize(p, e.choice)
	case "resize-pod":
		p.spec.Resources = nil
		if e.choice%3 > 0 {
			p.spec.Resources = &corev1.ResourceRequirements{Requests: lifeAmounts("cpu=" + strconv.Itoa(2000+500*(e.choice%2)) + "m"), Limits: lifeAmounts("cpu=" + strconv.Itoa(5+e.choice%2))}
		}
	case "debug":
		if !slices.ContainsFunc(p.containers, func(c liveContainer) bool { return c.name == "debugger" }) {
			l.start(p, "debugger", 1)
		}
	case "restart-agent", "restart-agent-alone", "hand-over":
		l.restartAgent(e)
	case "restart-kubelet":
		l.sync() // A kubelet that starts writes no group that exists.
	case "scale":
		c := p.containers[e.choice%len(p.containers)]
		l.must(l.tree.ScaleLimit(path.Join(p.group, c.id)))
	case "offline":
		l.setOnline(3)
	case "online":
		l.setOnline(4)
	case "time":
		l.pass(20)
	}

	l.sync()
	if e.kind != "late-status" {
		l.publish(true)
	}
}

// restartAgent ends the agent and starts the next one: after everything was restored, with a handover, or killed and without an API server.
func (l *lifeOf) restartAgent(e event) {
	if e.kind == "restart-agent" {
		l.stop("at " + e.String())
	}

	if e.kind == "hand-over" {
		content, err := durablefile.Seal(handoverVersion, handover{Deadline: l.clock.Now().Add(time.Minute)})
		l.must(err)
		l.must(os.WriteFile(filepath.Join(l.state, handoverFile), content, 0o600))
	}

	l.loop.observer.Close()
	knows := e.kind != "restart-agent-alone"
	l.startAgent(knows)
	if !knows {
		l.pass(8)
		l.check("without an API server, " + e.String())
	}
}

// stop undoes everything and checks that the kubelet's values are in force.
func (l *lifeOf) stop(when string) {
	l.sync()
	l.must(errors.Join(l.agent.changes.UndoAll(), l.memory.UndoAll()))
	l.sync()
	if entries := append(l.agent.changes.Entries(), l.memory.Entries()...); len(entries) > 0 {
		l.failf("%s: the journals have %+v, want none", when, entries)
	}

	l.check(when)
}

// pass lets seconds pass: the containers run, and the agent measures, decides and acts.
func (l *lifeOf) pass(seconds int) {
	for range seconds {
		l.clock.Step(time.Second)
		loads := []kernel.Load{{Group: "other", CPU: l.web}}
		for _, i := range slices.Sorted(maps.Keys(l.pods)) {
			for _, c := range l.pods[i].containers {
				loads = append(loads, kernel.Load{Group: path.Join(l.pods[i].group, c.id), CPU: c.cpu})
			}
		}

		uses, err := l.tree.Tick(time.Second, loads)
		l.must(err)

		used := 0.0
		for _, u := range uses {
			used += u.CPU
		}

		online := float64(l.cpus)
		l.busy += 100 * min(used, online)
		l.idle += 100 * max(online-used, 0)
		l.writeStat()
		l.loop.tick(l.clock.Now())

		l.ticks++
		if l.ticks%5 == 0 {
			l.must(l.elastic.Run(ended(l.t)))
		}

		l.sync()
	}
}

// setOnline takes CPUs of the machine offline or online: the kernel changes no quota and no weight for that.
func (l *lifeOf) setOnline(cpus int) {
	l.cpus = cpus
	online, err := numa.ParseCPUSet(fmt.Sprintf("0-%d", cpus-1))
	l.must(errors.Join(err, l.tree.SetOnline(online)))
	l.writeStat()
}

func (l *lifeOf) writeStat() {
	var text strings.Builder
	fmt.Fprintf(&text, "cpu %.0f 0 0 %.0f\n", l.busy, l.idle)
	for i := range l.cpus {
		fmt.Fprintf(&text, "cpu%d 0 0 0 0\n", i)
	}

	l.must(os.WriteFile(filepath.Join(l.dir, "proc/stat"), []byte(text.String()), 0o600))
}
