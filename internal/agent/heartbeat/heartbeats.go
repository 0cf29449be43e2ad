// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Heartbeats records the heartbeats of all parts. It is safe for concurrent use.
type Heartbeats struct {
	clock     clock.PassiveClock
	durations *prometheus.HistogramVec
	quantiles *prometheus.SummaryVec

	mu    sync.Mutex
	parts map[string]*part
}

type part struct {
	// last is the time of the last beat, or of the registration.
	last    time.Time
	started chan struct{} // closed at the first beat
	seen    bool
	steps   map[string]time.Time
}

// New returns heartbeats without parts.
func New(clk clock.PassiveClock) *Heartbeats {
	return &Heartbeats{
		clock: clk,
		parts: map[string]*part{},
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "crane_craneAgent_step_duration_seconds", Help: "Duration of a step of a part of the agent, in seconds.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, labels()),
		quantiles: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name:       "crane_craneAgent_step_duration_quantile_summary",
			Help:       "Duration of a step of a part of the agent over the last hour, in seconds.",
			Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001},
			MaxAge:     time.Hour,
		}, labels()),
	}
}

// labels returns gocrane's labels.
func labels() []string { return []string{"module", "subcomponent", "step"} }

// moduleLabel returns gocrane's name for the part of a step, or the part's own if gocrane has none.
func moduleLabel(part, step string) string {
	switch part + "/" + step {
	case "qos/look":
		return "StateCollector"
	case "qos/decide":
		return "AnomalyAnalyzer"
	case "qos/act":
		return "ActionExecutor"
	}

	switch part {
	case "node-resource":
		return "ModuleNodeResourceManager"
	case "pod-resource":
		return "ModulePodResourceManager"
	}

	return part
}

// Register adds a part and returns the function it calls after each step. From now on a missing beat makes the part overdue.
func (h *Heartbeats) Register(name string) func(step string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	added := &part{last: h.clock.Now(), started: make(chan struct{}), steps: map[string]time.Time{}}
	h.parts[name] = added
	return func(step string) {
		now := h.clock.Now()
		h.mu.Lock()
		defer h.mu.Unlock()

		added.last = now
		added.steps[step] = now
		if !added.seen {
			added.seen = true
			close(added.started)
		}
	}
}

// ObserveStep records the duration of a step.
func (h *Heartbeats) ObserveStep(name, step string, d time.Duration) {
	h.durations.WithLabelValues(moduleLabel(name, step), "", step).Observe(d.Seconds())
	h.quantiles.WithLabelValues(moduleLabel(name, step), "", step).Observe(d.Seconds())
}

// Started returns a channel that is closed at the part's first beat; nil for an unknown part.
func (h *Heartbeats) Started(name string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()

	if part := h.parts[name]; part != nil {
		return part.started
	}

	return nil
}

// Remove removes a part that has ended.
func (h *Heartbeats) Remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	delete(h.parts, name)
}

// Overdue lists the parts without a beat for longer than the given time, with the time since.
func (h *Heartbeats) Overdue(limit time.Duration) []string {
	now := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()

	var out []string
	for name, part := range h.parts {
		if since := now.Sub(part.last); since > limit {
			out = append(out, fmt.Sprintf("%s was not seen for %s", name, since.Round(time.Second)))
		}
	}

	slices.Sort(out)
	return out
}

// NotStarted lists the parts without a beat yet.
func (h *Heartbeats) NotStarted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()

	var out []string
	for name, part := range h.parts {
		if !part.seen {
			out = append(out, name+" has not begun")
		}
	}

	slices.Sort(out)
	return out
}

var activityDesc = prometheus.NewDesc("crane_craneAgent_last_activity", "Time of the last completed step of a part of the agent, in seconds since 1970.",
	labels(), nil)

// Describe implements prometheus.Collector.
func (h *Heartbeats) Describe(to chan<- *prometheus.Desc) {
	to <- activityDesc
	h.durations.Describe(to)
	h.quantiles.Describe(to)
}

// Collect implements prometheus.Collector.
func (h *Heartbeats) Collect(to chan<- prometheus.Metric) {
	type beat struct {
		name, step string
		at         time.Time
	}
	var all []beat
	h.mu.Lock()

	for name, part := range h.parts {
		for step, at := range part.steps {
			all = append(all, beat{name, step, at})
		}
	}

	h.mu.Unlock()
	slices.SortFunc(all, func(a, b beat) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.step, b.step)) })

	for _, b := range all {
		to <- prometheus.MustNewConstMetric(activityDesc, prometheus.GaugeValue, float64(b.at.UnixMilli())/1000, moduleLabel(b.name, b.step), "", b.step)
	}

	h.durations.Collect(to)
	h.quantiles.Collect(to)
}
