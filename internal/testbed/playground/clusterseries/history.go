// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/promserver"
)

// containerPoint is one point of a container's history.
type containerPoint struct {
	containerValues
	// use is the CPU use in cores, total the CPU seconds of all runs, which restarts do not reset.
	use, total float64
}

// containerHistory computes the past of one container window by window, once for all of its series.
type containerHistory struct {
	source    *load.Source
	container *load.Container // nil for a pod outside the catalog
	pod       *corev1.Pod
	name      string
	// from and to bound the container's life; runs are the starts of its runs within it, after the first.
	from, to time.Time
	first    time.Time // the start of the first run
	runs     []time.Time
	cpuLimit float64
	memLimit float64
	grid     promserver.Grid
	// resumed means that counters start with the grid, not with the run.
	resumed bool

	// window is empty if the container does not exist in it.
	window []containerPoint
	at     int // index of window[0] on the grid, -1 before the first
	state  containerPoint
	next   int // index of the next run in runs
	begun  bool
	start  time.Time
}

// computeWindow computes the window of n points starting at index first, unless it is the current one.
func (h *containerHistory) computeWindow(first, n int) {
	if h.at == first {
		return
	}

	h.at = first
	from := h.grid.Start.Add(time.Duration(first) * h.grid.Step)
	to := h.grid.Start.Add(time.Duration(first+n) * h.grid.Step)

	if !h.from.Before(to) || !h.to.After(from) {
		h.window = h.window[:0]
		return
	}

	if cap(h.window) < n {
		h.window = make([]containerPoint, n)
	}

	h.window = h.window[:n]

	// Steps carry state from one point to the next, so windows are computed in order.
	for i := range h.window {
		t := from.Add(time.Duration(i) * h.grid.Step)
		if t.Before(h.from) || !t.Before(h.to) {
			h.window[i] = absent()
			continue
		}

		h.step(t)
		h.window[i] = h.state
	}
}

// absent returns a point at which the container does not run.
func absent() containerPoint {
	nan := math.NaN()
	return containerPoint{containerValues: containerValues{memory: nan, started: nan, counters: counters{cpu: nan}}, use: 0, total: nan}
}

// step advances the counters to t.
func (h *containerHistory) step(t time.Time) {
	dt := h.grid.Step.Seconds()

	// A restart since the last step resets the counters of the cgroup.
	for h.next < len(h.runs) && !h.runs[h.next].After(t) {
		h.start = h.runs[h.next]
		dt = t.Sub(h.start).Seconds()
		h.state.counters = counters{}
		h.state.ooms++
		h.next++
	}

	// The first step accounts for the time since the start of the run, unless an earlier history did.
	if !h.begun {
		h.begun = true
		if h.start.IsZero() {
			h.start = h.first
		}

		dt = t.Sub(h.start).Seconds()

		if h.resumed {
			dt = min(dt, h.grid.Step.Seconds())
		}
	}

	// A container of the catalog has runs that its pod's status does not show.
	use := h.source.Use(h.pod, h.name, t)
	if h.container != nil {
		use = h.source.At(h.container, h.pod.Name, h.start, t)
	}

	s := &h.state
	s.started = unix(h.start)
	if !use.Known {
		s.memory = math.NaN()
		s.use = 0
		return
	}

	use = use.Within(h.memLimit)
	s.memory = use.Memory
	s.cache = use.Cache
	if h.memLimit > 0 {
		s.memory = math.Min(s.memory, h.memLimit)
	}

	cpu := use.CPU
	if h.cpuLimit > 0 {
		cpu = math.Min(cpu, h.cpuLimit)
		s.periods = math.Round(s.periods + dt/cfsPeriod)
		if use.CPU > h.cpuLimit {
			s.throttled = math.Round(s.throttled + dt/cfsPeriod)
			s.throttledSeconds = binary(s.throttledSeconds + (use.CPU-cpu)*dt)
		}
	}

	s.use = cpu
	before := s.cpu
	s.cpu = binary(s.cpu + cpu*dt)
	s.total += s.cpu - before
}

// past returns the container's state at the end of the history.
func (h *containerHistory) past() *pastContainer {
	p := &pastContainer{restarts: int32(h.next), started: h.start, counters: h.state.counters}
	if h.next > 0 {
		p.last = h.runs[h.next-1]
	}

	return p
}

// fill returns a function that writes a metric of the container to a window.
func (h *containerHistory) fill(value func(*containerValues) float64) func([]float64, int) {
	ended := false
	return func(dst []float64, first int) {
		h.computeWindow(first, len(dst))
		for i := range dst {
			dst[i] = math.NaN()
			if len(h.window) == 0 {
				continue
			}

			m := &h.window[i]
			if !math.IsNaN(m.started) {
				dst[i] = value(&m.containerValues)
			}
		}

		ended = markEnd(dst, first, h.grid, h.to, ended)
	}
}

// markEnd writes a staleness marker where a series ends. It returns whether the marker has been written; done is the
// result of the previous call.
func markEnd(dst []float64, first int, grid promserver.Grid, to time.Time, done bool) bool {
	if done || !to.Before(grid.End) {
		return done
	}

	i := int((to.Sub(grid.Start)+grid.Step-1)/grid.Step) - first
	if i < 0 || i >= len(dst) {
		return false
	}

	dst[i] = promserver.StaleMarker()
	return true
}
