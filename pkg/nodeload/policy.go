// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"crane.io/crane/pkg/series"
)

// Source is where a metric is read from.
type Source string

// The sources of metrics.
const (
	// FromPrometheus reads a recording rule or a query; it is the default.
	FromPrometheus Source = "Prometheus"
	// FromMetricsServer reads what a node uses at the moment from metrics.k8s.io.
	FromMetricsServer Source = "MetricsServer"
	// FromForecast takes the peak that is forecast for the coming hour.
	FromForecast Source = "Forecast"
)

// Metric is a load that nodes carry.
type Metric struct {
	// Name is the name of the recording rule, and the key of the annotation.
	Name string
	// Period is the time between two readings.
	Period time.Duration
	// Query in PromQL gives the percentage, 0 to 100, of every node; empty for the series called Name.
	Query string
	// Resource that it is a share of; empty where that is not known.
	Resource Resource
	// From is its source; empty for Prometheus.
	From Source
}

// Active is how long a value of the metric counts.
func (m Metric) Active() time.Duration { return m.Period + Grace }

// NamedLimit is a predicate: a node above Max takes no new pod. A Max of 0 is switched off.
type NamedLimit struct {
	Name string
	Max  series.Ratio
}

// NamedWeight is the weight of a metric in Score.
type NamedWeight struct {
	Name   string
	Weight float64
}

// HotRange says how recent placements count: one for each Count of them within Range.
type HotRange struct {
	Range time.Duration
	Count int64
}

// Spec is a policy as it is written down.
type Spec struct {
	Metrics    []Metric
	Predicates []NamedLimit
	Priorities []NamedWeight
	Hot        []HotRange
	// Marks by resource; nil for none.
	Marks map[Resource]WaterMarks
}

// Limit is what Filter checks of one metric.
type Limit struct {
	// Metric is an index in Policy.Metrics.
	Metric int
	// Max is the load above which the node is closed, more than 0.
	Max series.Ratio
	// Mark tells that Max is the mark schedule, and not the predicate's own limit.
	Mark bool
}

// Weight is what Score takes of one metric.
type Weight struct {
	// Metric is an index in Policy.Metrics.
	Metric int
	// Weight is more than 0. All weights of a policy add up to 1.
	Weight float64
}

// Policy is a Spec made ready for use: names resolved, what is switched off left out, marks worked in. It is never
// changed, so that many may read it.
type Policy struct {
	// Metrics in the order of the file.
	Metrics []Metric
	Limits  []Limit
	Weights []Weight
	Hot     []HotRange
	Marks   map[Resource]WaterMarks
	// Warnings are sentences about parts of the Spec that have no effect.
	Warnings []string
}

// NewPolicy resolves a Spec. It fails where a metric has no name or period, a number is not what it must be, or marks are
// out of order. What names a metric that is not read only warns: gocrane takes such a file too.
//
// Where a resource has marks, each of its limits is the lower of the predicate's and schedule; its Gauge is limited by
// schedule even if no predicate names it.
func NewPolicy(spec Spec) (*Policy, error) {
	p := &Policy{Metrics: make([]Metric, len(spec.Metrics)), Hot: spec.Hot, Marks: spec.Marks}
	index := map[string]int{}
	var errs []error
	for i, m := range spec.Metrics {
		if m.Resource == "" {
			m.Resource = ResourceOf(m.Name)
		}
		if _, twice := index[m.Name]; twice || m.Name == "" || m.Period <= 0 {
			errs = append(errs, fmt.Errorf("metric %q: want a name that stands once and a period of more than 0", m.Name))
		}
		index[m.Name], p.Metrics[i] = i, m
	}
	for _, h := range spec.Hot {
		if h.Range <= 0 || h.Count < 1 {
			errs = append(errs, fmt.Errorf("hot value of %d in %v: want a count of 1 or more and a range of more than 0", h.Count, h.Range))
		}
	}
	errs = append(errs, p.limit(spec.Predicates, index)...)
	errs = append(errs, p.weigh(spec.Priorities, index)...)
	errs = append(errs, p.mark()...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
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
		at, read := index[l.Name]
		if !read {
			p.warnf("predicate %q has no effect: syncPolicy does not read it", l.Name)
			continue
		}
		if l.Max == 0 {
			continue
		}
		schedule := p.Marks[p.Metrics[at].Resource].Schedule
		closes := ClosesAt(l.Max, schedule)
		p.Limits = append(p.Limits, Limit{Metric: at, Max: closes, Mark: closes < l.Max})
	}
	return errs
}

func (p *Policy) weigh(priorities []NamedWeight, index map[string]int) []error {
	var sum float64
	for _, w := range priorities {
		if !(w.Weight >= 0) || math.IsInf(w.Weight, 0) {
			return []error{fmt.Errorf("priority %q: want a weight of 0 or more, got %v", w.Name, w.Weight)}
		}
		at, read := index[w.Name]
		switch {
		case !read:
			p.warnf("priority %q has no effect: syncPolicy does not read it", w.Name)
		case w.Weight > 0:
			p.Weights = append(p.Weights, Weight{Metric: at, Weight: w.Weight})
			sum += w.Weight
		}
	}
	if math.IsInf(sum, 0) || len(priorities) > 0 && len(p.Weights) == 0 && len(p.Warnings) == 0 {
		return []error{fmt.Errorf("the sum of the weights is %v: want more than 0 and finite", sum)}
	}
	for i := range p.Weights {
		p.Weights[i].Weight /= sum
	}
	return nil
}

// mark checks the marks and closes each resource that has some.
func (p *Policy) mark() []error {
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

// Gauge is the metric that says how much of a resource a node uses now: of those that measure the resource the one that
// is read most often, the first of equals. Forecasts and maxima, which tell of other times, are taken only where there is
// nothing else. It is an index in Metrics.
func (p *Policy) Gauge(of Resource) (int, bool) {
	best, found := 0, false
	for i, m := range p.Metrics {
		if m.Resource == of && (!found || m.tellsMoreThan(p.Metrics[best])) {
			best, found = i, true
		}
	}
	return best, found
}

// tellsMoreThan compares what two metrics tell of the present.
func (m Metric) tellsMoreThan(other Metric) bool {
	if m.ofNow() != other.ofNow() {
		return m.ofNow()
	}
	return m.Period < other.Period
}

func (m Metric) ofNow() bool { return m.From != FromForecast && !m.maximum() }

// maximum tells by its name that the metric is the maximum of a time that is past.
func (m Metric) maximum() bool { return m.From != FromForecast && strings.Contains(m.Name, "_max_") }

// ResourceOf is the resource that a metric measures by its name: cpu_... and mem_... or memory_..., as gocrane's are
// called; empty for others.
func ResourceOf(metric string) Resource {
	switch {
	case strings.HasPrefix(metric, "cpu_"):
		return CPU
	case strings.HasPrefix(metric, "mem_"), strings.HasPrefix(metric, "memory_"):
		return Memory
	}
	return ""
}

// HotValue is the hot value of a node: for each range the whole part of the placements in it over its count, added up.
// placements has one number for each of ranges.
func HotValue(ranges []HotRange, placements []int64) int64 {
	var sum int64
	for i, r := range ranges {
		sum += placements[i] / r.Count
	}
	return sum
}
