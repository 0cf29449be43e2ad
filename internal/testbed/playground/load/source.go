// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// Use of a container that is not in the catalog, such as those of pods that a user creates: cores and bytes.
const (
	defaultCPU    = 0.002
	defaultMemory = 24 << 20
)

// Annotations with the use of each container of a pod outside the catalog, as quantities of cores and bytes. They
// allow demos with pods that exceed their requests by far.
const (
	annotationCPU    = "sim.crane.io/cpu"
	annotationMemory = "sim.crane.io/memory"
)

// uncatalogedUse returns the use of a container of a pod outside the catalog.
func uncatalogedUse(pod *corev1.Pod) kubelet.Use {
	use := kubelet.Use{CPU: defaultCPU, Memory: defaultMemory, Known: true}
	if q, err := resource.ParseQuantity(pod.Annotations[annotationCPU]); err == nil && q.Sign() >= 0 {
		use.CPU = q.AsApproximateFloat64()
	}
	if q, err := resource.ParseQuantity(pod.Annotations[annotationMemory]); err == nil && q.Sign() >= 0 {
		use.Memory = q.AsApproximateFloat64()
	}

	return use
}

// Past is the period of the history that is written at the start.
type Past struct{ Start, End time.Time }

// Source computes the use of every container. It implements kubelet.Load and is safe for concurrent use.
type Source struct {
	speed float64
	byApp map[app]*Workload
	past  atomic.Pointer[Past]
}

type app struct{ namespace, name string }

// NewSource returns a source of the workloads' use whose pattern runs speed times as fast as the clock (at least 1).
func NewSource(workloads []*Workload, speed float64) *Source {
	s := &Source{speed: max(1, speed), byApp: make(map[app]*Workload, len(workloads))}
	for _, w := range workloads {
		s.byApp[app{w.Namespace, w.Name}] = w
	}

	return s
}

// SetPast sets the period of the written history. Pods created before its end whose containers have not restarted
// continue the runs of the history; before SetPast this applies to all pods.
func (s *Source) SetPast(p Past) { s.past.Store(&p) }

// Workload returns the catalog entry of a pod, or false if it has none.
func (s *Source) Workload(pod *corev1.Pod) (*Workload, bool) {
	w, ok := s.byApp[app{pod.Namespace, pod.Labels[LabelName]}]
	return w, ok
}

// Use implements kubelet.Load.
func (s *Source) Use(pod *corev1.Pod, container string, at time.Time) kubelet.Use {
	w, ok := s.Workload(pod)
	if !ok {
		return uncatalogedUse(pod)
	}

	c := w.container(container)
	if c == nil {
		return kubelet.Use{CPU: defaultCPU, Memory: defaultMemory, Known: true}
	}

	return s.At(c, pod.Name, s.runStart(w, c, pod, at), at)
}

// runStart returns the start of the container's current run: that of the pod status or, for a run that is part of the
// history, that of the history.
func (s *Source) runStart(w *Workload, c *Container, pod *corev1.Pod, at time.Time) time.Time {
	started, restarts := runOf(pod, c.Name)
	past := s.past.Load()
	if w.Kind == "CronJob" || restarts > 0 || (past != nil && pod.CreationTimestamp.After(past.End)) {
		if started.IsZero() {
			return at
		}

		return started
	}

	if past == nil {
		return at.Add(-longAgo)
	}

	return s.lastRun(c, pod.Name, w.Born(*past, pod.CreationTimestamp.Time), past.End)
}

// longAgo is the assumed age of a run without known start; caches are full by then.
const longAgo = 30 * 24 * time.Hour

// runOf returns the start of a container's current run and the number of restarts.
func runOf(pod *corev1.Pod, container string) (time.Time, int32) {
	for _, st := range pod.Status.ContainerStatuses {
		if st.Name != container {
			continue
		}

		if st.State.Running == nil {
			return time.Time{}, st.RestartCount
		}

		return st.State.Running.StartedAt.Time, st.RestartCount
	}

	return time.Time{}, 0
}

// At returns the use of a container of the named pod at time at, in a run that started at start.
func (s *Source) At(c *Container, pod string, start, at time.Time) kubelet.Use {
	key := hashString(pod)
	now := s.pattern(at)
	p := &c.Profile

	age := now - s.pattern(start)
	u := kubelet.Use{
		CPU:    p.cpu(key, now),
		Memory: p.memory(key, now, age),
		Cache:  p.cache(age),
		Known:  true,
	}
	if math.IsNaN(u.CPU) || math.IsNaN(u.Memory) {
		return kubelet.Use{}
	}

	return u
}

// pattern converts a time to pattern seconds.
func (s *Source) pattern(t time.Time) float64 { return s.speed * float64(t.UnixMilli()) / 1000 }

// Born returns the assumed creation time of a pod that was created at the given time shortly before the first history
// ended: before the history, or at the rollout within it. It does not change when a later history follows.
func (w *Workload) Born(p Past, created time.Time) time.Time {
	if w.Rollout == 0 {
		return p.Start.Add(-24 * time.Hour)
	}

	end := p.End
	if created.After(p.Start) && created.Before(end) {
		end = created
	}

	return p.Start.Add(time.Duration(w.Rollout * float64(end.Sub(p.Start)))).Truncate(time.Minute)
}

// Runs returns the starts of a container's runs within (from, to], for a pod created at from. Only leaks have any,
// because they are repeatedly OOM-killed.
func (s *Source) Runs(c *Container, pod string, from, to time.Time) []time.Time {
	life := time.Duration(float64(c.Profile.Life) / s.speed)
	if life <= 0 {
		return nil
	}

	// The first run is shorter by a phase, or all pods of a workload would be killed at the same time.
	phase := time.Duration(between(mix(c.Profile.Seed, hashString(pod), 8), 0.35, 1) * float64(life))

	var starts []time.Time
	for t := from.Add(phase); !t.After(to); t = t.Add(life) {
		starts = append(starts, t)
	}

	return starts
}

// firstAge returns the assumed age of a leak's first run at its creation, so that it ends at the time that Runs
// returns.
func (s *Source) firstAge(c *Container, pod string) time.Duration {
	life := float64(c.Profile.Life) / s.speed
	return time.Duration(life - between(mix(c.Profile.Seed, hashString(pod), 8), 0.35, 1)*life)
}

// lastRun returns the start of the run at a time.
func (s *Source) lastRun(c *Container, pod string, born, at time.Time) time.Time {
	if runs := s.Runs(c, pod, born, at); len(runs) > 0 {
		return runs[len(runs)-1]
	}

	return s.Birth(c, pod, born)
}

// Birth returns the assumed start of a container's first run: the creation of the pod or, for a leak, an earlier time
// so that the run ends at the time that Runs returns.
func (s *Source) Birth(c *Container, pod string, born time.Time) time.Time {
	return born.Add(-s.firstAge(c, pod))
}

func (w *Workload) container(name string) *Container {
	for i := range w.Containers {
		if w.Containers[i].Name == name {
			return &w.Containers[i]
		}
	}

	return nil
}

// Container returns the named container, or false where the workload has none of that name.
func (w *Workload) Container(name string) (*Container, bool) {
	c := w.container(name)
	return c, c != nil
}
