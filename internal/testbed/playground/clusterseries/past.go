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

// Backfill returns the history of the objects on a grid, as series to be written in one pass:
//
//   - every running pod that is not owned by a Job existed throughout the past, or since its workload's rollout within
//     it;
//   - before a rollout there was an earlier generation: another ReplicaSet with pods of other names;
//   - a CronJob ran at the times of its schedule, the last maxPastRuns of them;
//   - leaking containers were repeatedly OOM-killed.
//
// past is the whole history, grid the part of it to be written: all of it at the first start, the missing part after a
// restart. After a restart every counter starts at zero, because its last value is unknown. Backfill calls SetPast of
// the load source.
func (e *Exporter) Backfill(o Objects, past load.Past, grid promserver.Grid) (*History, error) {
	if grid.Len() == 0 || !past.End.After(past.Start) {
		return nil, fmt.Errorf("history: no samples between %s and %s with step %s", grid.Start, grid.End, grid.Step)
	}

	if len(o.Nodes) == 0 {
		return nil, errors.New("history: there are no nodes")
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	e.load.SetPast(past)
	b := &builder{
		load:      e.load,
		past:      past,
		grid:      grid,
		resumed:   grid.Start.After(past.Start),
		objects:   &o,
		bandwidth: e.bandwidth,
		byNode:    map[string][]*containerHistory{},
		earlier:   map[string]bool{},
		register:  func(pod *corev1.Pod, a *backfilledPod) { e.backfilled[pod.UID] = a },
	}

	for _, pod := range o.Pods {
		if kind, _, _ := ownerOf(&pod.ObjectMeta); kind == "Job" || pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName == "" {
			continue
		}

		b.addPod(pod)
	}

	if err := b.addCronJobs(); err != nil {
		return nil, err
	}

	// Current Jobs have no past, and pods are added above.
	lasting := o
	lasting.Jobs = nil
	lasting.Pods = nil
	newCollector(b.constantSink(grid.Start, grid.End, nil)).emitObjects(&lasting)

	for _, n := range o.Nodes {
		e.nodes[n.Name] = b.addNode(machineOf(n))
	}

	machines := make([]machine, 0, len(o.Nodes))
	for _, n := range o.Nodes {
		machines = append(machines, machineOf(n))
	}

	emitScrapes(b.constantSink(grid.Start, grid.End, nil), machines, nil)
	return &History{Series: b.series, exporter: e, finish: b.finish}, nil
}

// History is a computed past that has not been written yet.
type History struct {
	// Series must be filled over the whole grid, once.
	Series []promserver.Series

	exporter *Exporter
	finish   []func()
}

// Commit makes live counters continue where the history ends. It must be called once, after every series has been
// filled and before the first call of Samples.
func (h *History) Commit() {
	h.exporter.mu.Lock()
	defer h.exporter.mu.Unlock()

	for _, f := range h.finish {
		f()
	}
	h.finish = nil
}

// builder collects the series of a history.
type builder struct {
	load      *load.Source
	past      load.Past
	grid      promserver.Grid
	resumed   bool // an earlier part of the past was written before
	objects   *Objects
	bandwidth func(*corev1.Pod, string) float64
	register  func(*corev1.Pod, *backfilledPod)

	series []promserver.Series
	byNode map[string][]*containerHistory
	// earlier contains the Deployments whose former ReplicaSet has been added.
	earlier map[string]bool
	// finish runs after the last window has been filled.
	finish []func()
}

// valueOverride replaces a constant value by a function of time; false drops the series.
type valueOverride func(name string, pairs []string) (func(t time.Time) float64, bool)

// constantSink returns a sink that converts every sample to a series with that value from one time to another.
func (b *builder) constantSink(from, to time.Time, change valueOverride) sink {
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

// add adds a series whose value is a function of time.
func (b *builder) add(name string, pairs []string, from, to time.Time, course func(time.Time) float64) {
	grid := b.grid
	ended := false
	b.push(name, pairs, func(dst []float64, first int) {
		for i := range dst {
			t := grid.Start.Add(time.Duration(first+i) * grid.Step)
			dst[i] = math.NaN()

			if !t.Before(from) && t.Before(to) {
				dst[i] = course(t)
			}
		}

		ended = markEnd(dst, first, grid, to, ended)
	})
}

func (b *builder) addConstant(name string, pairs []string, from, to time.Time, value float64) {
	grid := b.grid
	ended := false
	begin := indexOf(grid, from)
	end := indexOf(grid, to)

	b.push(name, pairs, func(dst []float64, first int) {
		for i := range dst {
			dst[i] = value

			if first+i < begin || first+i >= end {
				dst[i] = math.NaN()
			}
		}

		ended = markEnd(dst, first, grid, to, ended)
	})
}

// indexOf returns the first index of the grid that is not before t.
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

// addPod adds the past of a running pod and of the pod that it replaced.
func (b *builder) addPod(pod *corev1.Pod) {
	w, _ := b.load.Workload(pod)
	born := b.past.Start.Add(-24 * time.Hour)
	if w != nil {
		born = w.Born(b.past, pod.CreationTimestamp.Time)
	}

	histories := b.addPodSeries(pod, w, born, b.grid.End)
	a := &backfilledPod{born: born, end: b.grid.End, containers: map[string]*pastContainer{}}
	b.finish = append(b.finish, func() {
		for _, h := range histories {
			a.containers[h.name] = h.past()
			a.totals.add(h.state.total, b.bandwidth(pod, h.name))
		}
	})

	b.register(pod, a)
	if w != nil && w.Rollout > 0 && born.After(b.grid.Start) {
		b.addPredecessor(pod, w, born)
	}
}

// addPodSeries adds all series of a pod that exists from one time to another and returns the histories of its
// containers.
func (b *builder) addPodSeries(pod *corev1.Pod, w *load.Workload, from, to time.Time) []*containerHistory {
	aged := pod.DeepCopy()
	aged.CreationTimestamp = metav1.NewTime(from)
	aged.Status.StartTime = &aged.CreationTimestamp

	var histories []*containerHistory
	byName := map[string]*containerHistory{}
	for _, c := range longRunning(pod) {
		h := b.addContainer(pod, w, c, from, to)
		histories = append(histories, h)
		byName[c.Name] = h
	}

	newCollector(b.constantSink(from, to, func(name string, pairs []string) (func(time.Time) float64, bool) {
		return overrideRestarts(name, pairs, byName)
	})).emitPod(aged)

	for _, h := range histories {
		b.addLastTermination(aged, h)
	}

	b.addPodCgroup(pod, histories, to)
	return histories
}

// longRunning returns the containers of a pod that run as long as the pod: its containers and restartable init
// containers.
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

// overrideRestarts replaces the restart counter by that of the history and drops the last termination of the pod's
// status.
func overrideRestarts(name string, pairs []string, byName map[string]*containerHistory) (func(time.Time) float64, bool) {
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

// addLastTermination adds the series of the last termination from the first restart on.
func (b *builder) addLastTermination(pod *corev1.Pod, h *containerHistory) {
	if len(h.runs) == 0 {
		return
	}

	common := []string{"namespace", pod.Namespace, "pod", pod.Name, "uid", string(pod.UID), "container", h.name, "job", JobState, "instance", stateInstance}
	b.addConstant("kube_pod_container_status_last_terminated_reason", append([]string{"reason", reasonOOM}, common...), h.runs[0], h.to, 1)
	b.add("kube_pod_container_status_last_terminated_timestamp", common, h.runs[0], h.to, func(t time.Time) float64 {
		return float64(h.runs[int(h.restarts(t))-1].Unix())
	})
}

// restarts returns the number of runs that have ended by t.
func (h *containerHistory) restarts(t time.Time) float64 {
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

// addContainer adds the cAdvisor series of one container.
func (b *builder) addContainer(pod *corev1.Pod, w *load.Workload, spec *corev1.Container, from, to time.Time) *containerHistory {
	h := &containerHistory{
		source:   b.load,
		pod:      pod,
		name:     spec.Name,
		from:     from,
		to:       to,
		first:    from,
		grid:     b.grid,
		at:       -1,
		resumed:  b.resumed,
		cpuLimit: limit(spec.Resources, corev1.ResourceCPU),
		memLimit: limit(spec.Resources, corev1.ResourceMemory),
	}

	// A pod outside the catalog has one run and a constant use.
	if w != nil {
		if c, ok := w.Container(spec.Name); ok {
			h.container = c
			h.first = b.load.Birth(c, pod.Name, from)
			h.runs = b.load.Runs(c, pod.Name, from, minTime(to, b.grid.End))
		}
	}

	id := containerID(pod, spec.Name)

	// The labels are those of live samples; only the values are computed window by window.
	emit := func(name string, fill func([]float64, int)) {
		containerSink(func(name string, _ float64, pairs ...string) { b.push(name, pairs, fill) }, pod, pod.Spec.NodeName, spec.Name, spec.Image, id)(name, 0)
	}

	for _, m := range cadvisorMetrics() {
		if !m.limited || h.cpuLimit > 0 {
			emit(m.name, h.fill(m.value))
		}
	}

	emitCgroupLimits(containerSink(b.constantSink(from, to, nil), pod, pod.Spec.NodeName, spec.Name, spec.Image, id), spec.Resources)
	b.byNode[pod.Spec.NodeName] = append(b.byNode[pod.Spec.NodeName], h)
	return h
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}

	return a
}

// containerID returns the container ID of the pod's status, or one derived from names for pods that never existed.
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
