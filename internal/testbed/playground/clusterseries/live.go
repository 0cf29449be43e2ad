// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// Samples returns the samples of all exporters at the time of the snapshot. Counters continue where the history ended.
func (e *Exporter) Samples(s Snapshot) []promserver.Sample {
	e.mu.Lock()
	defer e.mu.Unlock()

	var out []promserver.Sample
	to := collect(&out)

	c := newCollector(to)
	for _, pod := range s.Objects.Pods {
		c.emitPod(e.withHistory(pod))
	}

	c.emitObjects(&s.Objects)
	e.liveContainers(to, s)
	e.liveNodes(to, s)

	return out
}

// withHistory returns the pod as if its history had happened: older, and with the restarts of the history.
func (e *Exporter) withHistory(pod *corev1.Pod) *corev1.Pod {
	a, ok := e.backfilled[pod.UID]
	if !ok {
		return pod
	}

	aged := pod.DeepCopy()
	aged.CreationTimestamp = metav1.NewTime(a.born)
	aged.Status.StartTime = &aged.CreationTimestamp
	for i := range aged.Status.ContainerStatuses {
		st := &aged.Status.ContainerStatuses[i]
		past, ok := a.containers[st.Name]
		if !ok || past.restarts == 0 {
			continue
		}

		st.RestartCount += past.restarts
		if st.LastTerminationState.Terminated == nil {
			st.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				Reason: reasonOOM, ExitCode: 137, FinishedAt: metav1.NewTime(past.last),
			}
		}
	}

	return aged
}

const reasonOOM = "OOMKilled"

func (e *Exporter) liveContainers(to sink, s Snapshot) {
	seenRuns := map[runKey]bool{}
	memory := map[types.UID]float64{}
	metrics := cadvisorMetrics()

	var order []kubelet.ContainerState // the first container of each pod
	for _, state := range s.Containers {
		uid := state.Pod.UID
		seenRuns[runKey{uid, state.Container}] = true

		if _, seen := memory[uid]; !seen {
			order = append(order, state)
		}

		memory[uid] += state.Use.Memory
		f := e.updateCounters(state, s.At)

		if !state.Reachable {
			continue
		}

		emit := containerSink(to, state.Pod, state.Node, state.Container, state.Image, bareID(state.ID))
		for _, m := range metrics {
			if m.limited && limit(state.Resources, corev1.ResourceCPU) == 0 {
				continue
			}

			if v := m.value(&f); !math.IsNaN(v) {
				emit(m.name, v)
			}
		}

		emitCgroupLimits(emit, state.Resources)
	}

	for _, state := range order {
		if state.Reachable {
			emitPod(podSink(to, state.Pod, state.Node), *e.podTotals(state.Pod.UID), memory[state.Pod.UID])
		}
	}

	// Forget containers and pods that have ended.
	for key := range e.runs {
		if !seenRuns[key] {
			delete(e.runs, key)
		}
	}

	for uid := range e.pods {
		if _, seen := memory[uid]; !seen {
			delete(e.pods, uid)
		}
	}
}

// updateCounters advances the counters of a container and of its pod to the given state.
func (e *Exporter) updateCounters(state kubelet.ContainerState, at time.Time) containerValues {
	key := runKey{state.Pod.UID, state.Container}
	r, ok := e.runs[key]
	if !ok || !r.startedAt.Equal(state.StartedAt) {
		r = e.startRun(state, at)
		e.runs[key] = r
	}

	f := containerValues{memory: math.NaN(), started: unix(r.started), ooms: float64(state.OOMKills)}
	if state.Use.Known {
		f.memory = state.Use.Memory
		f.cache = state.Use.Cache
	}

	if p := e.pastOf(state); p != nil {
		f.ooms += float64(p.restarts)
	}

	// Counters of the node start at zero with its process; the offset makes them continue those of the history.
	f.cpu = binary(r.offset.cpu + state.CPUSeconds)
	f.periods = math.Round(r.offset.periods + state.Periods)
	f.throttled = math.Round(r.offset.throttled + state.ThrottledPeriods)
	f.throttledSeconds = binary(r.offset.throttledSeconds + state.ThrottledSeconds)

	// The counters of the pod add up the increments, so that restarts of a container do not reset them.
	delta := math.Max(0, f.cpu-r.cpu)
	r.cpu = f.cpu
	p := e.podTotals(state.Pod.UID)
	received := delta * e.bandwidth(state.Pod, state.Container)
	p.cpu += delta
	p.received += received
	p.sent += received * networkSentPart

	return f
}

// startRun starts tracking a run. A run that is part of the history continues it, with the current use for the time
// between the end of the history and now.
func (e *Exporter) startRun(state kubelet.ContainerState, at time.Time) *run {
	r := &run{startedAt: state.StartedAt, started: state.StartedAt}
	p := e.pastOf(state)
	if p == nil || state.Restarts > 0 {
		return r
	}

	since := math.Max(0, at.Sub(e.backfilled[state.Pod.UID].end).Seconds())
	r.started = p.started
	r.cpu = p.counters.cpu
	r.offset = counters{
		cpu:              p.counters.cpu + state.Use.CPU*since - state.CPUSeconds,
		throttled:        p.counters.throttled - state.ThrottledPeriods,
		throttledSeconds: p.counters.throttledSeconds - state.ThrottledSeconds,
	}

	if limit(state.Resources, corev1.ResourceCPU) > 0 {
		r.offset.periods = p.counters.periods + since/cfsPeriod - state.Periods
	}

	return r
}

func (e *Exporter) pastOf(state kubelet.ContainerState) *pastContainer {
	a, ok := e.backfilled[state.Pod.UID]
	if !ok {
		return nil
	}

	return a.containers[state.Container]
}

func (e *Exporter) podTotals(uid types.UID) *podTotals {
	p, ok := e.pods[uid]
	if !ok {
		p = &podTotals{}
		if a, ok := e.backfilled[uid]; ok {
			*p = a.totals
		}

		e.pods[uid] = p
	}

	return p
}

// bandwidth returns the bytes that a container receives per CPU second.
func (e *Exporter) bandwidth(pod *corev1.Pod, container string) float64 {
	if w, ok := e.load.Workload(pod); ok {
		if c, ok := w.Container(container); ok {
			return c.Profile.Bandwidth
		}
	}

	return defaultBandwidth
}

const defaultBandwidth = 1 << 16

// emitPod emits the metrics of a pod's cgroup and network.
func emitPod(emit sink, t podTotals, memory float64) {
	for _, m := range podMetrics() {
		emit(m.name, m.value(&t, memory), m.pairs...)
	}
}

// podMetric is one metric of a pod's cgroup.
type podMetric struct {
	name  string
	value func(t *podTotals, memory float64) float64
	pairs []string
}

func podMetrics() []podMetric {
	network := []string{"interface", "eth0"}
	return []podMetric{
		{name: "container_cpu_usage_seconds_total", value: func(t *podTotals, _ float64) float64 { return binary(t.cpu) }},
		{name: "container_memory_working_set_bytes", value: func(_ *podTotals, memory float64) float64 { return memory }},
		{name: "container_network_receive_bytes_total", pairs: network, value: func(t *podTotals, _ float64) float64 { return math.Floor(t.received) }},
		{name: "container_network_transmit_bytes_total", pairs: network, value: func(t *podTotals, _ float64) float64 { return math.Floor(t.sent) }},
	}
}

func (e *Exporter) liveNodes(to sink, s Snapshot) {
	machines := make([]machine, 0, len(s.Objects.Nodes))
	states := map[string]kubelet.NodeState{}
	down := map[string]bool{}
	for _, state := range s.Nodes {
		states[state.Spec.Name] = state
		down[state.Spec.Name] = !state.Reachable
	}

	for _, n := range s.Objects.Nodes {
		m := machineOf(n)
		machines = append(machines, m)

		state, ok := states[n.Name]
		if !ok || !state.Reachable || m.cores <= 0 {
			continue
		}

		f := e.updateNodeCounters(state, s.At)
		for _, metric := range nodeMetrics() {
			m.eachSeries(metric, func(name string, pairs ...string) { to(name, metric.value(&m, &f), pairs...) })
		}
	}

	emitScrapes(to, machines, down)
}

func (e *Exporter) updateNodeCounters(state kubelet.NodeState, at time.Time) nodeValues {
	t, ok := e.nodes[state.Spec.Name]
	if !ok {
		t = &nodeTotals{since: state.StartedAt, until: at}
		if t.since.IsZero() { // Its kubelet has not measured yet.
			t.since = at
		}

		e.nodes[state.Spec.Name] = t
	}

	if !t.attached {
		t.attached = true
		t.offset = t.busy + state.Use.CPU*math.Max(0, at.Sub(t.until).Seconds()) - state.CPUSeconds
	}

	return nodeValues{
		elapsed: math.Max(0, at.Sub(t.since).Seconds()),
		busy:    t.offset + state.CPUSeconds,
		cpu:     state.Use.CPU,
		memory:  state.Use.Memory,
	}
}

// bareID returns a container ID without the runtime's scheme.
func bareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}

	return id
}
