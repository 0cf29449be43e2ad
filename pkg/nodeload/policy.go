// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// Source is the source of a metric.
type Source string

// Sources of metrics.
const (
	// FromPrometheus reads a recording rule or a query; it is the default.
	FromPrometheus Source = "Prometheus"
	// FromMetricsServer reads the current usage of a node from metrics.k8s.io.
	FromMetricsServer Source = "MetricsServer"
	// FromForecast reads the forecast peak of the coming hour.
	FromForecast Source = "Forecast"
)

// Metric is one load of nodes.
type Metric struct {
	// Name is the name of the recording rule and the key of the annotation. It has no slash.
	Name string
	// Period is the interval between readings.
	Period time.Duration
	// Query is PromQL for the percentage, 0 to 100, of every node; empty for the series called Name.
	Query string
	// SampleTime is PromQL for the time of the newest raw sample of every node, in seconds since 1970; empty for the
	// series of DefaultSampleTime.
	SampleTime string
	// Resource is the measured resource; empty if unknown.
	Resource units.Resource
	// From is its source; empty for Prometheus.
	From Source
}

// Active returns how long a value of the metric is valid.
func (m Metric) Active() time.Duration { return m.Period + Grace }

// DefaultSampleTime returns the name of the recorded series with the times of the newest raw samples of the nodes, for
// a metric that names no query of its own; empty for none.
func (m Metric) DefaultSampleTime() string {
	if m.Query != "" || m.SampleTime != "" {
		return ""
	}

	switch m.Resource {
	case units.CPU:
		return "node_cpu_sample_time_seconds"
	case units.Memory:
		return "node_memory_sample_time_seconds"
	}

	return ""
}

// NamedLimit is a predicate: a node above Max gets no new pod. A Max of 0 disables it.
type NamedLimit struct {
	Name string
	Max  units.Ratio
}

// NamedWeight is the weight of a metric in Score.
type NamedWeight struct {
	Name   string
	Weight float64
}

// HotRange counts recent placements: each Count of them within Range add one to the hot value.
type HotRange struct {
	Range time.Duration
	Count int64
}

// Spec is a policy as configured.
type Spec struct {
	Metrics    []Metric
	Predicates []NamedLimit
	Priorities []NamedWeight
	Hot        []HotRange
	// Marks by resource; nil for none.
	Marks map[units.Resource]WaterMarks
}

// Limit is a limit of Filter on one metric.
type Limit struct {
	// Metric is an index in Policy.Metrics.
	Metric int
	// Max is the load above which the node is closed; > 0.
	Max units.Ratio
	// Mark means that Max is the mark schedule and not the predicate's own limit.
	Mark bool
}

// Weight is the weight of one metric in Score.
type Weight struct {
	// Metric is an index in Policy.Metrics.
	Metric int
	// Weight is > 0. All weights of a policy add up to 1.
	Weight float64
}

// Policy is a resolved Spec: names replaced by indexes, disabled parts left out, marks applied. It is immutable, so
// that many goroutines may read it.
type Policy struct {
	// Metrics in the order of the file.
	Metrics []Metric
	Limits  []Limit
	Weights []Weight
	Hot     []HotRange
	Marks   map[units.Resource]WaterMarks
	// Warnings are sentences about parts of the Spec without effect or with an unintended one.
	Warnings []string
}

// NewPolicy resolves a Spec. It returns an error if a metric has no name or period or a name with a slash, a number is
// out of range, or marks are out of order. A reference to a metric that is not read is only a warning, because gocrane accepts such a
// file.
//
// If a resource has marks, each of its limits is the lower of the predicate's and schedule; its Gauge is limited by
// schedule even without a predicate.
func NewPolicy(spec Spec) (*Policy, error) {
	p := &Policy{Metrics: make([]Metric, len(spec.Metrics)), Hot: spec.Hot, Marks: spec.Marks}
	index := map[string]int{}
	var errs []error
	for i, m := range spec.Metrics {
		if m.Resource == "" {
			m.Resource = ResourceOf(m.Name)
		}
		if _, twice := index[m.Name]; twice || m.Name == "" || m.Period <= 0 {
			errs = append(errs, fmt.Errorf("metric %q: want a unique name and a period of more than 0", m.Name))
		}
		if strings.Contains(m.Name, "/") {
			errs = append(errs, fmt.Errorf("metric %q: want a name without a slash: the name is the key of an annotation, and keys with a prefix are not of node load", m.Name))
		}

		index[m.Name] = i
		p.Metrics[i] = m
	}

	for _, h := range spec.Hot {
		if h.Range <= 0 || h.Count < 1 {
			errs = append(errs, fmt.Errorf("hot value of %d in %v: want a count of 1 or more and a range of more than 0", h.Count, h.Range))
		}
	}

	// Marks come last: they add limits only for resources that no predicate limits.
	errs = append(errs, p.limit(spec.Predicates, index)...)

	errs = append(errs, p.weigh(spec.Priorities, index)...)
	errs = append(errs, p.applyMarks()...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	for _, m := range p.Metrics {
		if m.From == FromMetricsServer && m.Resource == units.Memory {
			p.warnf("metric %q counts page cache in use as load: metrics-server reports no other memory of nodes; read it from Prometheus", m.Name)
		}
	}

	return p, nil
}

func (p *Policy) limit(predicates []NamedLimit, index map[string]int) []error {
	var errs []error
	for _, l := range predicates {
		if !(l.Max >= 0 && l.Max <= 1) {
			errs = append(errs, fmt.Errorf("predicate %q: want a limit from 0 to 1, got %v", l.Name, l.Max))
			continue
		}

		metric, read := index[l.Name]
		if !read {
			p.warnf("predicate %q has no effect: syncPolicy does not read it", l.Name)
			continue
		}

		if l.Max == 0 {
			continue
		}

		schedule := p.Marks[p.Metrics[metric].Resource].Schedule
		closes := ClosesAt(l.Max, schedule)
		p.Limits = append(p.Limits, Limit{Metric: metric, Max: closes, Mark: closes < l.Max})
	}

	return errs
}

func (p *Policy) weigh(priorities []NamedWeight, index map[string]int) []error {
	var sum float64
	for _, w := range priorities {
		if !(w.Weight >= 0) || math.IsInf(w.Weight, 0) {
			return []error{fmt.Errorf("priority %q: want a weight of 0 or more, got %v", w.Name, w.Weight)}
		}

		metric, read := index[w.Name]
		switch {
		case !read:
			p.warnf("priority %q has no effect: syncPolicy does not read it", w.Name)
		case w.Weight > 0:
			p.Weights = append(p.Weights, Weight{Metric: metric, Weight: w.Weight})
			sum += w.Weight
		}
	}

	// Weights that all belong to metrics that are not read have led to warnings already.
	if math.IsInf(sum, 0) || len(priorities) > 0 && len(p.Weights) == 0 && len(p.Warnings) == 0 {
		return []error{fmt.Errorf("the sum of the weights is %v: want more than 0 and finite", sum)}
	}

	for i := range p.Weights {
		p.Weights[i].Weight /= sum
	}

	return nil
}

// applyMarks validates the marks and limits each resource that has some.
func (p *Policy) applyMarks() []error {
	var errs []error
	for _, resource := range sortedKeys(p.Marks) {
		marks := p.Marks[resource]
		if err := marks.Check(); err != nil {
			errs = append(errs, fmt.Errorf("water marks of %s: %w", resource, err))
			continue
		}

		gauge, ok := p.Gauge(resource)
		if !ok {
			p.warnf("water marks of %s have no effect on scheduling: syncPolicy reads no metric of it", resource)
			continue
		}

		// Without a predicate on the gauge, the mark is its limit.
		limited := false
		for _, l := range p.Limits {
			limited = limited || l.Metric == gauge
		}

		if !limited {
			p.Limits = append(p.Limits, Limit{Metric: gauge, Max: marks.Schedule, Mark: true})
		}
	}

	return errs
}

func (p *Policy) warnf(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// Gauge returns the metric of the present usage of a resource, as an index in Metrics: of those that measure the
// resource the one with the shortest period, the first of equals. Forecasts and maxima are used only if there is no
// other.
func (p *Policy) Gauge(resource units.Resource) (int, bool) {
	best := 0
	found := false
	for i, m := range p.Metrics {
		if m.Resource == resource && (!found || m.preferredOver(p.Metrics[best])) {
			best = i
			found = true
		}
	}

	return best, found
}

// preferredOver reports whether a metric reflects the present better than another.
func (m Metric) preferredOver(other Metric) bool {
	if m.ofNow() != other.ofNow() {
		return m.ofNow()
	}

	return m.Period < other.Period
}

func (m Metric) ofNow() bool { return m.From != FromForecast && !m.maximum() }

// maximum reports whether the metric is a maximum over past time, by its name.
func (m Metric) maximum() bool { return m.From != FromForecast && strings.Contains(m.Name, "_max_") }

// ResourceOf returns the resource of a metric by its name: cpu_... and mem_... or memory_..., as in gocrane; empty
// for others.
func ResourceOf(metric string) units.Resource {
	switch {
	case strings.HasPrefix(metric, "cpu_"):
		return units.CPU
	case strings.HasPrefix(metric, "mem_"), strings.HasPrefix(metric, "memory_"):
		return units.Memory
	}

	return ""
}

// HotValue returns the hot value of a node: the sum over the ranges of the whole part of placements / Count.
// placements has one number per range.
func HotValue(ranges []HotRange, placements []int64) int64 {
	var sum int64
	for i, r := range ranges {
		sum += placements[i] / r.Count
	}

	return sum
}
