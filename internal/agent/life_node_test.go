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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/effectiverequest"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/podresource"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/testbed/simnode/kernel"
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
	ticks      int
}

// livePod is a pod with the spec at the API server and the one that the kubelet has applied.
type livePod struct {
	uid        string
	group      string
	spec       corev1.PodSpec
	containers []liveContainer
}

type liveContainer struct {
	name, id string
	cpu      float64
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
		pods: map[int]*livePod{}, written: map[string]map[string]string{}, refused: map[string]int{}, busy: 1000, idle: 1000, web: 1,
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

	parent := ""
	for part := range strings.SplitSeq(group, "/") {
		parent = path.Join(parent, part)
		for file, value := range map[string]string{"cpuset.cpus": "0-3", "cpuset.mems": "0"} {
			l.must(l.tree.Write(filepath.Join(l.tree.Dir, "../cpuset", parent, file), value))
		}
	}
}

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

// object returns the pod at the API server.
func (p *livePod) object() *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p" + p.uid, UID: types.UID(p.uid), Labels: map[string]string{"app": "hog"}},
		Spec:       *p.spec.DeepCopy(),
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}

	for _, c := range p.containers {
		status := corev1.ContainerStatus{Name: c.name, ContainerID: "containerd://" + c.id}
		if c.name == "debugger" {
			out.Spec.EphemeralContainers = append(out.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.name}})
			out.Status.EphemeralContainerStatuses = append(out.Status.EphemeralContainerStatuses, status)
			continue
		}

		out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, status)
	}

	return out
}

// amounts returns a list such as cpu=500m.
func lifeAmounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(value)
	}

	return out
}

// lifeResources returns resources of containers to choose from: ordinary, elastic, none.
func lifeResources(choice int) corev1.ResourceRequirements {
	elastic := lifeAmounts("gocrane.io/cpu=3")
	switch choice % 5 {
	case 0:
		return corev1.ResourceRequirements{Requests: lifeAmounts("cpu=500m"), Limits: lifeAmounts("cpu=4")}
	case 1:
		return corev1.ResourceRequirements{Requests: lifeAmounts("cpu=200m"), Limits: lifeAmounts("cpu=1")}
	case 2:
		return corev1.ResourceRequirements{Requests: elastic, Limits: elastic}
	case 3:
		return corev1.ResourceRequirements{}
	}

	return corev1.ResourceRequirements{Requests: lifeAmounts("cpu=1")}
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
	case "time":
		l.pass(20)
	}

	l.sync()
	if e.kind != "late-status" {
		l.publish(true)
	}
}

func (l *lifeOf) create(e event) {
	if l.pods[e.pod] != nil {
		return
	}

	l.lastID++
	p := &livePod{uid: fmt.Sprintf("%08d-0000-0000-0000-000000000000", l.lastID)}
	for i := range 1 + e.choice%2 {
		p.spec.Containers = append(p.spec.Containers, corev1.Container{Name: "c" + strconv.Itoa(i), Resources: lifeResources(e.choice/2 + i)})
	}

	class := "besteffort"
	if l.classOf(p) == corev1.PodQOSBurstable {
		class = "burstable"
	}

	p.group = "kubepods/" + class + "/pod" + p.uid
	l.makeGroup(p.group)
	l.pods[e.pod] = p
	l.sync()
	for _, c := range p.spec.Containers {
		l.start(p, c.Name, float64(e.choice%4))
	}
}

func (l *lifeOf) classOf(p *livePod) corev1.PodQOSClass {
	for _, c := range p.spec.Containers {
		if !c.Resources.Requests.Cpu().IsZero() {
			return corev1.PodQOSBurstable
		}
	}

	return corev1.PodQOSBestEffort
}

// start creates the group of a container with the settings that the runtime writes: all are accepted.
func (l *lifeOf) start(p *livePod, name string, cpu float64) {
	l.lastID++
	c := liveContainer{name: name, id: fmt.Sprintf("%064x", l.lastID), cpu: cpu}
	p.containers = append(p.containers, c)
	group := path.Join(p.group, c.id)
	l.makeGroup(group)
	for _, s := range l.settingsOf(p)[group] {
		if err := l.writeSetting(group, s); err != nil {
			l.failf("the runtime starts container %s of pod %s: %v", name, p.uid[:8], err)
		}
	}

	l.must(l.tree.Attach(group, 1000+l.lastID))
}

// end removes the group of a container.
func (l *lifeOf) end(p *livePod, i int) {
	group := path.Join(p.group, p.containers[i].id)
	l.must(l.tree.Detach(group))
	l.must(l.tree.Remove(group))
	delete(l.written, group)
	p.containers = slices.Delete(p.containers, i, i+1)
}

// restart ends a container and starts its successor at once; a debug container has none.
func (l *lifeOf) restart(p *livePod, i int) {
	c := p.containers[i]
	l.end(p, i)
	if c.name != "debugger" || len(p.containers) == 0 {
		l.start(p, c.name, c.cpu)
	}
}

// resize changes the ordinary resources of a container; elastic ones cannot be changed, and the class stays.
func (l *lifeOf) resize(p *livePod, choice int) {
	c := &p.spec.Containers[choice%len(p.spec.Containers)]
	request := strconv.Itoa(100*(1+choice%9)) + "m"
	_, elastic := c.Resources.Requests["gocrane.io/cpu"]
	if elastic || l.classOf(p) == corev1.PodQOSBestEffort {
		return
	}

	requests := lifeAmounts("cpu=" + request)
	c.Resources = corev1.ResourceRequirements{Requests: requests}
	if choice%3 > 0 {
		c.Resources.Limits = lifeAmounts("cpu=" + strconv.Itoa(1+choice%4))
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

		l.busy += 100 * min(used, 4)
		l.idle += 100 * max(4-used, 0)
		l.writeStat()
		l.loop.tick(l.clock.Now())

		l.ticks++
		if l.ticks%5 == 0 {
			l.must(l.elastic.Run(ended(l.t)))
		}

		l.sync()
	}
}

func (l *lifeOf) writeStat() {
	cpu := fmt.Sprintf("%.0f 0 0 %.0f", l.busy, l.idle)
	l.must(os.WriteFile(filepath.Join(l.dir, "proc/stat"), []byte("cpu "+cpu+"\ncpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\ncpu3 0 0 0 0\n"), 0o600))
}

// setting is a value of the kubelet or runtime.
type setting struct{ file, value string }

// settingsOf returns the kubelet's settings of a pod by group.
func (l *lifeOf) settingsOf(p *livePod) map[string][]setting {
	object := p.object()
	whole := effectiverequest.Pod(object)
	limited := !slices.ContainsFunc(p.spec.Containers, func(c corev1.Container) bool { return c.Resources.Limits.Cpu().IsZero() })
	quota := int64(-1)
	if limited || p.spec.Resources != nil && !p.spec.Resources.Limits.Cpu().IsZero() {
		quota = int64(whole.Limit.CPU)
	}

	out := map[string][]setting{p.group: l.settings(int64(whole.Request.CPU), quota)}
	for _, c := range p.containers {
		request, limit := int64(0), int64(-1)
		for _, spec := range p.spec.Containers {
			if spec.Name == c.name {
				request = spec.Resources.Requests.Cpu().MilliValue()
				if q := spec.Resources.Limits.Cpu(); !q.IsZero() {
					limit = q.MilliValue()
				}
			}
		}

		out[path.Join(p.group, c.id)] = l.settings(request, limit)
	}

	return out
}

// settings converts a request and a limit, -1 for none, in millicores.
func (l *lifeOf) settings(request, limit int64) []setting {
	shares := max(request*1024/1000, 2)
	if l.v1 {
		return []setting{{cgroup.FileSharesV1, strconv.FormatInt(shares, 10)}, {cgroup.FileQuotaV1, strconv.FormatInt(max(limit*100, -1), 10)}}
	}

	quota := "max"
	if limit >= 0 {
		quota = strconv.FormatInt(limit*100, 10)
	}

	return []setting{{cgroup.FileWeight, strconv.FormatInt(1+(shares-2)*9999/262142, 10)}, {cgroup.FileMax, quota + " 100000"}}
}

// sync writes the settings that have changed since the kubelet wrote them: the quota of a pod before those of its containers where it rises,
// else after them.
func (l *lifeOf) sync() {
	for _, i := range slices.Sorted(maps.Keys(l.pods)) {
		p := l.pods[i]
		settings := l.settingsOf(p)
		groups := slices.Sorted(maps.Keys(settings))
		for _, group := range append(groups, p.group) {
			for _, s := range settings[group] {
				if l.written[group][s.file] == s.value {
					continue
				}

				key := group + " " + s.file
				err := l.writeSetting(group, s)
				if err == nil {
					delete(l.refused, key)
					continue
				}

				// The first attempt to lower a pod's quota on v1 fails until its containers have theirs.
				l.refused[key]++
				if l.refused[key] > 2*maxRefusals {
					l.failf("the kubelet's write of %s to %s was refused %d times: %v", s.value, key, l.refused[key], err)
				}
			}
		}
	}
}

func (l *lifeOf) writeSetting(group string, s setting) error {
	name, err := l.layout.SettingFile(group, s.file)
	l.must(err)

	if err := l.tree.Write(name, s.value); err != nil {
		return err
	}

	// The runtime writes the period as well, after the quota where the kernel requires that.
	if s.file == cgroup.FileQuotaV1 {
		if err := l.tree.Write(filepath.Join(filepath.Dir(name), cgroup.FilePeriodV1), "100000"); err != nil {
			return err
		}
	}

	if l.written[group] == nil {
		l.written[group] = map[string]string{}
	}
	l.written[group][s.file] = s.value

	return nil
}

// check checks the invariants.
func (l *lifeOf) check(when string) {
	entries := append(l.agent.changes.Entries(), l.memory.Entries()...)
	for _, i := range slices.Sorted(maps.Keys(l.pods)) {
		p := l.pods[i]
		granted := effectiverequest.Containers(p.object())
		l.checkGroup(when, p.group, entries, int64(effectiverequest.Pod(p.object()).Request.CPU))
		for _, c := range p.containers {
			l.checkGroup(when, path.Join(p.group, c.id), entries, int64(granted[c.name].Request.CPU))
		}
	}
}

func (l *lifeOf) checkGroup(when, group string, entries []act.Entry, request int64) {
	limit, _, err := l.layout.ReadLimit(&host.Reader{}, group)
	l.must(err)
	for file, kubelets := range l.written[group] {
		if l.refused[group+" "+file] > 0 {
			continue // It is about to be written.
		}

		now, err := l.layout.ReadSetting(&host.Reader{}, group, file)
		l.must(err)

		top, bottom := recordsOf(entries, group, file)
		isQuota := file == cgroup.FileMax || file == cgroup.FileQuotaV1
		switch {
		case cgroup.EqualSettings(file, now, kubelets), isQuota && l.isScaled(limit, kubelets):
		case top != nil && (cgroup.EqualSettings(file, now, top.Set) || cgroup.EqualSettings(file, now, top.Before)):
		case top != nil && isQuota && (l.isScaled(limit, top.Set) || l.isScaled(limit, top.Before)):
		case (file == cgroup.FileWeight || file == cgroup.FileSharesV1) && l.isIdle(group):
		default:
			l.failf("%s: %s of %s is %q, neither the kubelet's %q nor in the journal: %+v", when, file, group, now, kubelets, top)
		}

		if bottom != nil && !cgroup.EqualSettings(file, bottom.Original, kubelets) && cgroup.EqualSettings(file, now, bottom.Set) && !isQuota {
			l.failf("%s: %s of %s would be restored to %q, want the kubelet's %q", when, file, group, bottom.Original, kubelets)
		}

		if isQuota && !limit.Unlimited() && !cgroup.EqualSettings(file, now, kubelets) && int64(1000*limit.Cores()+1.5) < request && l.ticks%5 == 0 {
			l.failf("%s: the quota of %s is %.0fm, below its effective request of %dm", when, group, 1000*limit.Cores(), request)
		}
	}
}

func (l *lifeOf) isIdle(group string) bool {
	text, err := l.layout.ReadSetting(&host.Reader{}, group, cgroup.FileIdle)
	return err == nil && text == "1"
}

// isScaled reports whether the kernel made a limit of a value.
func (l *lifeOf) isScaled(now cgroup.Bandwidth, value string) bool {
	if !l.v1 {
		b, err := cgroup.ParseCPUMax([]byte(value + "\n"))
		return err == nil && now.IsScaled(b)
	}

	quota, err := strconv.ParseInt(value, 10, 64)
	return err == nil && now.IsScaled(cgroup.Bandwidth{Quota: time.Duration(quota) * time.Microsecond, Period: 100 * time.Millisecond})
}

// recordsOf returns the records of a file in the units that changed it last and first; nil if none did.
func recordsOf(entries []act.Entry, group, file string) (top, bottom *act.FileRecord) {
	for i := range entries {
		for j := range entries[i].Files {
			f := &entries[i].Files[j]
			if f.Group != group || f.File != file || f.Condition {
				continue
			}

			if bottom == nil {
				bottom = f
			}
			top = f
		}
	}

	return top, bottom
}
