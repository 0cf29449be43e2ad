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

// Pulse is the heartbeats of all parts. It is safe for concurrent use.
type Pulse struct {
	clock     clock.PassiveClock
	took      *prometheus.HistogramVec
	quantiles *prometheus.SummaryVec

	mu    sync.Mutex
	parts map[string]*part
}

type part struct {
	// last is when it was seen last; before the first beat, when it was added.
	last  time.Time
	begun chan struct{} // closed at the first beat
	beat  bool
	steps map[string]time.Time
}

// New returns a pulse of no parts.
func New(clk clock.PassiveClock) *Pulse {
	return &Pulse{clock: clk, parts: map[string]*part{}, took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "crane_craneAgent_step_duration_seconds", Help: "What a step of a part of the agent took.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
	}, labels()), quantiles: prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name: "crane_craneAgent_step_duration_quantile_summary", Help: "What a step of a part of the agent took in the last hour, in seconds.",
		Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}, MaxAge: time.Hour,
	}, labels())}
}

// labels are gocrane's.
func labels() []string { return []string{"module", "subcomponent", "step"} }

// module is gocrane's name for what does a step, where it had one.
func module(part, step string) string {
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

// For adds a part and returns what it calls at the end of each step of its work. From now on it counts as late when it was not seen for
// too long.
func (p *Pulse) For(name string) func(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	added := &part{last: p.clock.Now(), begun: make(chan struct{}), steps: map[string]time.Time{}}
	p.parts[name] = added
	return func(step string) {
		now := p.clock.Now()
		p.mu.Lock()
		defer p.mu.Unlock()
		added.last, added.steps[step] = now, now
		if !added.beat {
			added.beat = true
			close(added.begun)
		}
	}
}

// Took tells how long a step took.
func (p *Pulse) Took(name, step string, d time.Duration) {
	p.took.WithLabelValues(module(name, step), "", step).Observe(d.Seconds())
	p.quantiles.WithLabelValues(module(name, step), "", step).Observe(d.Seconds())
}

// Begun is closed when the part was seen at work once; nil where there is no such part.
func (p *Pulse) Begun(name string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if part := p.parts[name]; part != nil {
		return part.begun
	}
	return nil
}

// Forget says that a part has ended and is not to be waited for.
func (p *Pulse) Forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parts, name)
}

// Late names the parts that were not seen for longer than a time, with how long.
func (p *Pulse) Late(most time.Duration) []string {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for name, part := range p.parts {
		if since := now.Sub(part.last); since > most {
			out = append(out, fmt.Sprintf("%s was not seen for %s", name, since.Round(time.Second)))
		}
	}
	slices.Sort(out)
	return out
}

// Waiting names the parts that have not been seen at work yet.
func (p *Pulse) Waiting() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for name, part := range p.parts {
		if !part.beat {
			out = append(out, name+" has not begun")
		}
	}
	slices.Sort(out)
	return out
}

var activityDesc = prometheus.NewDesc("crane_craneAgent_last_activity", "When a part of the agent last ended a step, in seconds since 1970.",
	labels(), nil)

// Describe implements prometheus.Collector.
func (p *Pulse) Describe(to chan<- *prometheus.Desc) {
	to <- activityDesc
	p.took.Describe(to)
	p.quantiles.Describe(to)
}

// Collect implements prometheus.Collector.
func (p *Pulse) Collect(to chan<- prometheus.Metric) {
	type beat struct {
		name, step string
		at         time.Time
	}
	var all []beat
	p.mu.Lock()
	for name, part := range p.parts {
		for step, at := range part.steps {
			all = append(all, beat{name, step, at})
		}
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b beat) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.step, b.step)) })
	for _, b := range all {
		to <- prometheus.MustNewConstMetric(activityDesc, prometheus.GaugeValue, float64(b.at.UnixMilli())/1000, module(b.name, b.step), "", b.step)
	}
	p.took.Collect(to)
	p.quantiles.Collect(to)
}
