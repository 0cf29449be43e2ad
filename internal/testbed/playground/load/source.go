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

// stranger is what a container uses that is not in the catalogue: little, as the pods that a user tries things with.
const (
	strangerCPU    = 0.002
	strangerMemory = 24 << 20
)

// Annotations by which a stranger says what each of its containers uses: cores and bytes, as quantities. So a demo can have
// a pod that uses far more than it asks for.
const (
	annotationCPU    = "sim.crane.io/cpu"
	annotationMemory = "sim.crane.io/memory"
)

// strange is what a container of a stranger uses.
func strange(pod *corev1.Pod) kubelet.Use {
	use := kubelet.Use{CPU: strangerCPU, Memory: strangerMemory, Known: true}
	if q, err := resource.ParseQuantity(pod.Annotations[annotationCPU]); err == nil && q.Sign() >= 0 {
		use.CPU = q.AsApproximateFloat64()
	}
	if q, err := resource.ParseQuantity(pod.Annotations[annotationMemory]); err == nil && q.Sign() >= 0 {
		use.Memory = q.AsApproximateFloat64()
	}
	return use
}

// Past is the stretch of history that is written before the start.
type Past struct{ Start, End time.Time }

// Source says what every container uses. It implements kubelet.Load and is safe for concurrent use.
type Source struct {
	speed float64
	byApp map[app]*Workload
	past  atomic.Pointer[Past]
}

type app struct{ namespace, name string }

// NewSource makes a source of the workloads' use whose pattern runs speed times as fast as the clock (at least 1).
func NewSource(workloads []*Workload, speed float64) *Source {
	s := &Source{speed: max(1, speed), byApp: make(map[app]*Workload, len(workloads))}
	for _, w := range workloads {
		s.byApp[app{w.Namespace, w.Name}] = w
	}
	return s
}

// SetPast says what history was written. A pod that was created before its end and whose containers have not restarted
// continues the run that the history shows; before SetPast every pod counts as such.
func (s *Source) SetPast(p Past) { s.past.Store(&p) }

// Workload returns the catalogue's entry for a pod, or false for a stranger.
func (s *Source) Workload(pod *corev1.Pod) (*Workload, bool) {
	w, ok := s.byApp[app{pod.Namespace, pod.Labels[LabelName]}]
	return w, ok
}

// Use implements kubelet.Load.
func (s *Source) Use(pod *corev1.Pod, container string, at time.Time) kubelet.Use {
	w, ok := s.Workload(pod)
	if !ok {
		return strange(pod)
	}
	c := w.container(container)
	if c == nil {
		return kubelet.Use{CPU: strangerCPU, Memory: strangerMemory, Known: true}
	}
	return s.At(c, pod.Name, s.runStart(w, c, pod, at), at)
}

// runStart is when the container's present run began: what the status says, or, for a run that the history shows, there.
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

// longAgo is the age of a run of which nothing is known; caches are full by then.
const longAgo = 30 * 24 * time.Hour

// runOf reads when a container's present run began and how many came before it.
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

// At returns what a container of the named pod uses at a time, in a run that began at start.
func (s *Source) At(c *Container, pod string, start, at time.Time) kubelet.Use {
	key, now := hashString(pod), s.pattern(at)
	p := &c.Profile
	age := now - s.pattern(start)
	u := kubelet.Use{CPU: p.cpu(key, now), Memory: p.memory(key, now, age), Cache: p.cache(age), Known: true}
	if math.IsNaN(u.CPU) || math.IsNaN(u.Memory) {
		return kubelet.Use{}
	}
	return u
}

// pattern is the time of the shapes, in seconds.
func (s *Source) pattern(t time.Time) float64 { return s.speed * float64(t.UnixMilli()) / 1000 }

// Born is when a pod of the workload began that was created at a given time shortly before the first history ended: before
// the history, or with the rollout within it. It stays the same when a later history follows.
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

// Runs returns the starts of a container's runs within (from, to], for a pod that was born at from: none but for a leak,
// which its limit kills again and again.
func (s *Source) Runs(c *Container, pod string, from, to time.Time) []time.Time {
	life := time.Duration(float64(c.Profile.Life) / s.speed)
	if life <= 0 {
		return nil
	}
	// The first run is cut short by a phase, or all pods of a workload would die together.
	phase := time.Duration(between(mix(c.Profile.Seed, hashString(pod), 8), 0.35, 1) * float64(life))
	var starts []time.Time
	for t := from.Add(phase); !t.After(to); t = t.Add(life) {
		starts = append(starts, t)
	}
	return starts
}

// firstAge is how old, on the clock, a leak's first run seems at its birth, so that it ends when Runs says.
func (s *Source) firstAge(c *Container, pod string) time.Duration {
	life := float64(c.Profile.Life) / s.speed
	return time.Duration(life - between(mix(c.Profile.Seed, hashString(pod), 8), 0.35, 1)*life)
}

// lastRun is the start of the run that goes on at a time.
func (s *Source) lastRun(c *Container, pod string, born, at time.Time) time.Time {
	if runs := s.Runs(c, pod, born, at); len(runs) > 0 {
		return runs[len(runs)-1]
	}
	return s.Birth(c, pod, born)
}

// Birth is when the first run of a pod's container seems to have begun: with the pod, or, for a leak, so long before
// that it ends when Runs says.
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
