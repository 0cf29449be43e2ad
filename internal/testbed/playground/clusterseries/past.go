// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/promserver"
)

// Backfill gives the history of the objects on a grid, as series to be written in one go:
//
//   - every running pod that no Job owns has lived through the past, or since its workload's rollout within it;
//   - before a rollout there lived an earlier generation: another ReplicaSet with pods of other names;
//   - a CronJob has run at the times of its schedule, the last maxPastRuns of them;
//   - leaks have been killed by their limit again and again.
//
// past is the whole history, grid the part of it that is to be written: all of it at the first start, what is missing
// after a restart. Then every counter begins at zero, for nobody knows where it stood. The source of the load is told of
// the past.
func (e *Exporter) Backfill(o Objects, past load.Past, grid promserver.Grid) (*History, error) {
	if grid.Len() == 0 || !past.End.After(past.Start) {
		return nil, fmt.Errorf("history: nothing between %s and %s by %s", grid.Start, grid.End, grid.Step)
	}
	if len(o.Nodes) == 0 {
		return nil, errors.New("history: there are no nodes")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.load.SetPast(past)
	b := &builder{
		load: e.load, past: past, grid: grid, resumed: grid.Start.After(past.Start), objects: &o, bandwidth: e.bandwidth,
		byNode: map[string][]*history{}, earlier: map[string]bool{},
		adopt: func(pod *corev1.Pod, a *adopted) { e.adopted[pod.UID] = a },
	}
	for _, pod := range o.Pods {
		if kind, _, _ := ownerOf(&pod.ObjectMeta); kind == "Job" || pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName == "" {
			continue
		}
		b.pod(pod)
	}
	if err := b.cronJobs(); err != nil {
		return nil, err
	}
	rest := o
	rest.Jobs, rest.Pods = nil, nil // those of now have no past
	newCollector(b.during(grid.Start, grid.End, nil)).others(&rest)
	for _, n := range o.Nodes {
		e.nodes[n.Name] = b.node(machineOf(n))
	}
	machines := make([]machine, 0, len(o.Nodes))
	for _, n := range o.Nodes {
		machines = append(machines, machineOf(n))
	}
	scrapes(b.during(grid.Start, grid.End, nil), machines, nil)
	return &History{Series: b.series, exporter: e, finish: b.finish}, nil
}

// History is a past that waits to be written.
type History struct {
	// Series are to be filled over the whole grid, once.
	Series []promserver.Series

	exporter *Exporter
	finish   []func()
}

// Commit makes live counters go on from where the history ends. It is called once, after every series has been filled
// and before the first call of Samples.
func (h *History) Commit() {
	h.exporter.mu.Lock()
	defer h.exporter.mu.Unlock()
	for _, f := range h.finish {
		f()
	}
	h.finish = nil
}

// builder gathers the series of a history.
type builder struct {
	load      *load.Source
	past      load.Past
	grid      promserver.Grid
	resumed   bool // an earlier part of the past was written before
	objects   *Objects
	bandwidth func(*corev1.Pod, string) float64
	adopt     func(*corev1.Pod, *adopted)

	series []promserver.Series
	byNode map[string][]*history
	// earlier are the Deployments whose former ReplicaSet has been added.
	earlier map[string]bool
	// finish runs when the last window has been filled.
	finish []func()
}

// override replaces a constant by a course: the value at a time, or false to leave the series out.
type override func(name string, pairs []string) (func(t time.Time) float64, bool)

// during is a sink that makes of every sample a series with that value from one time to another.
func (b *builder) during(from, to time.Time, change override) sink {
	return func(name string, value float64, pairs ...string) {
		course := func(time.Time) float64 { return value }
		if change != nil {
			other, keep := change(name, pairs)
			if !keep {
				return
			}
			if other != nil {
				b.add(name, pairs, from, to, other)
				return
			}
		}
		b.addConstant(name, pairs, from, to, course(from))
	}
}

// add adds a series whose value follows a course.
func (b *builder) add(name string, pairs []string, from, to time.Time, course func(time.Time) float64) {
	grid, ended := b.grid, false
	b.push(name, pairs, func(dst []float64, first int) {
		for i := range dst {
			t := grid.Start.Add(time.Duration(first+i) * grid.Step)
			if dst[i] = math.NaN(); !t.Before(from) && t.Before(to) {
				dst[i] = course(t)
			}
		}
		ended = endOf(dst, first, grid, to, ended)
	})
}

func (b *builder) addConstant(name string, pairs []string, from, to time.Time, value float64) {
	grid, ended := b.grid, false
	begin, end := indexOf(grid, from), indexOf(grid, to)
	b.push(name, pairs, func(dst []float64, first int) {
		for i := range dst {
			if dst[i] = value; first+i < begin || first+i >= end {
				dst[i] = math.NaN()
			}
		}
		ended = endOf(dst, first, grid, to, ended)
	})
}

// indexOf is the first index of the grid that is not before t.
func indexOf(grid promserver.Grid, t time.Time) int {
	d := t.Sub(grid.Start)
	if d <= 0 {
		return 0
	}
	return int((d + grid.Step - 1) / grid.Step)
}

func (b *builder) push(name string, pairs []string, fill func([]float64, int)) {
	b.series = append(b.series, promserver.Series{Labels: labelSet(name, pairs), Fill: fill})
}

// pod gives a past to a pod that runs now, and to the one that it replaced.
func (b *builder) pod(pod *corev1.Pod) {
	w, _ := b.load.Workload(pod)
	born := b.past.Start.Add(-24 * time.Hour)
	if w != nil {
		born = w.Born(b.past, pod.CreationTimestamp.Time)
	}
	histories := b.live(pod, w, born, b.grid.End)
	a := &adopted{born: born, end: b.grid.End, containers: map[string]*pastContainer{}}
	b.finish = append(b.finish, func() {
		for _, h := range histories {
			a.containers[h.name] = h.past()
			a.totals.add(h.state.total, b.bandwidth(pod, h.name))
		}
	})
	b.adopt(pod, a)
	if w != nil && w.Rollout > 0 && born.After(b.grid.Start) {
		b.predecessor(pod, w, born)
	}
}

// live adds all series of a pod that lives from one time to another, and returns those of its containers.
func (b *builder) live(pod *corev1.Pod, w *load.Workload, from, to time.Time) []*history {
	aged := pod.DeepCopy()
	aged.CreationTimestamp = metav1.NewTime(from)
	aged.Status.StartTime = &aged.CreationTimestamp
	var histories []*history
	byName := map[string]*history{}
	for _, c := range longRunning(pod) {
		h := b.container(pod, w, c, from, to)
		histories = append(histories, h)
		byName[c.Name] = h
	}
	newCollector(b.during(from, to, func(name string, pairs []string) (func(time.Time) float64, bool) {
		return restartCourse(name, pairs, byName)
	})).statePod(aged)
	for _, h := range histories {
		b.lastEnd(aged, h)
	}
	b.podCgroup(pod, histories, to)
	return histories
}

// longRunning are the containers of a pod that run as long as it: its own, and the init containers that are restarted.
func longRunning(pod *corev1.Pod) []*corev1.Container {
	var list []*corev1.Container
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			list = append(list, c)
		}
	}
	for i := range pod.Spec.Containers {
		list = append(list, &pod.Spec.Containers[i])
	}
	return list
}

// restartCourse makes the restart counter follow the history and leaves out what the pod says of ends since then.
func restartCourse(name string, pairs []string, byName map[string]*history) (func(time.Time) float64, bool) {
	switch name {
	case "kube_pod_container_status_restarts_total":
		if h := byName[labelOf(pairs, "container")]; h != nil {
			return h.restarts, true
		}
	case "kube_pod_container_status_last_terminated_reason", "kube_pod_container_status_last_terminated_timestamp":
		return nil, false
	}
	return nil, true
}

// lastEnd says why the container ended before its present run, once there was an end.
func (b *builder) lastEnd(pod *corev1.Pod, h *history) {
	if len(h.runs) == 0 {
		return
	}
	common := []string{"namespace", pod.Namespace, "pod", pod.Name, "uid", string(pod.UID), "container", h.name, "job", JobState, "instance", stateInstance}
	b.addConstant("kube_pod_container_status_last_terminated_reason", append([]string{"reason", reasonOOM}, common...), h.runs[0], h.to, 1)
	b.add("kube_pod_container_status_last_terminated_timestamp", common, h.runs[0], h.to, func(t time.Time) float64 {
		return float64(h.runs[int(h.restarts(t))-1].Unix())
	})
}

// restarts is the number of runs that have ended by t.
func (h *history) restarts(t time.Time) float64 {
	n, exact := slices.BinarySearchFunc(h.runs, t, time.Time.Compare)
	if exact {
		n++
	}
	return float64(n)
}

func labelOf(pairs []string, name string) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == name {
			return pairs[i+1]
		}
	}
	return ""
}

// container adds the cAdvisor series of one container.
func (b *builder) container(pod *corev1.Pod, w *load.Workload, spec *corev1.Container, from, to time.Time) *history {
	h := &history{
		source: b.load, pod: pod, name: spec.Name, from: from, to: to, first: from, grid: b.grid, at: -1, resumed: b.resumed,
		cpuLimit: limit(spec.Resources, corev1.ResourceCPU), memLimit: limit(spec.Resources, corev1.ResourceMemory),
	}
	if w != nil {
		if c, ok := w.Container(spec.Name); ok {
			h.container = c
			h.first = b.load.Birth(c, pod.Name, from)
			h.runs = b.load.Runs(c, pod.Name, from, minTime(to, b.grid.End))
		}
	}
	id := containerID(pod, spec.Name)
	emit := func(name string, fill func([]float64, int)) {
		containerSink(func(name string, _ float64, pairs ...string) { b.push(name, pairs, fill) }, pod, pod.Spec.NodeName, spec.Name, spec.Image, id)(name, 0)
	}
	for _, m := range cadvisorMetrics() {
		if !m.limited || h.cpuLimit > 0 {
			emit(m.name, h.fill(m.value))
		}
	}
	cadvisorConstants(containerSink(b.during(from, to, nil), pod, pod.Spec.NodeName, spec.Name, spec.Image, id), spec.Resources)
	b.byNode[pod.Spec.NodeName] = append(b.byNode[pod.Spec.NodeName], h)
	return h
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// containerID is that of the pod's status, or one made of its names where the pod never was.
func containerID(pod *corev1.Pod, name string) string {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, st := range list {
			if st.Name == name && st.ContainerID != "" {
				return bareID(st.ContainerID)
			}
		}
	}
	return digest(string(pod.UID), name)
}
