// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"crane.io/crane/pkg/units"
)

// maxMetrics is the maximum number of metrics of a policy in scheduling.
const maxMetrics = 64

// kind is the index of a resource in pairs.
type kind int8

const (
	kindCPU kind = iota
	kindMemory
	kindOther
	kinds = 2
)

func kindOf(r units.Resource) kind {
	switch r {
	case units.CPU:
		return kindCPU
	case units.Memory:
		return kindMemory
	}

	return kindOther
}

func (a Amount) of(k kind) float64 {
	switch k {
	case kindCPU:
		return float64(a.CPU)
	case kindMemory:
		return float64(a.Memory)
	}

	return 0
}

// Rules are a policy and a strategy prepared for decisions. They are immutable, so that many goroutines may read
// them.
type Rules struct {
	Policy   *Policy
	Strategy Strategy

	kinds   []kind
	windows []time.Duration
	// maxima marks metrics that are maxima over a longer time: usage of ended pods stays in them.
	maxima []bool
	// counting marks the metrics to which pending pods are added one by one. The others have no known resource, or
	// are maxima that follow the gauge.
	counting []bool
	gauges   [kinds]int
}

// NewRules returns an error if the policy has more than 64 metrics or the strategy is invalid.
func NewRules(policy *Policy, strategy Strategy) (*Rules, error) {
	if len(policy.Metrics) > maxMetrics {
		return nil, fmt.Errorf("the policy reads %d metrics: want at most %d", len(policy.Metrics), maxMetrics)
	}

	if err := strategy.check(); err != nil {
		return nil, err
	}

	r := &Rules{Policy: policy, Strategy: strategy, gauges: [kinds]int{-1, -1}}
	for _, m := range policy.Metrics {
		r.kinds = append(r.kinds, kindOf(m.Resource))
		r.windows = append(r.windows, Window(m))
		r.maxima = append(r.maxima, m.maximum())
	}

	for _, resource := range []units.Resource{units.CPU, units.Memory} {
		if gauge, ok := policy.Gauge(resource); ok {
			r.gauges[kindOf(resource)] = gauge
		}
	}

	// Pending pods are added to present loads only; maxima follow these.
	for i := range policy.Metrics {
		r.counting = append(r.counting, r.kinds[i] != kindOther && r.present(i) == i)
	}

	return r, nil
}

// present returns the metric of the present usage for the resource of a maximum; the metric itself if it is no
// maximum or there is no better one.
func (r *Rules) present(metric int) int {
	k := r.kinds[metric]
	if !r.maxima[metric] || k == kindOther || r.maxima[r.gauges[k]] {
		return metric
	}

	return r.gauges[k]
}

// Window returns the averaging window of a metric: the duration after avg_ in its name, as in cpu_usage_avg_5m, else
// five minutes. A maximum of averages, as in cpu_usage_max_avg_1h, has averages of five minutes in gocrane's
// recording rules. metrics-server averages over about a minute.
func Window(m Metric) time.Duration {
	const usual = 5 * time.Minute
	if m.From == FromMetricsServer {
		return time.Minute
	}

	_, after, found := strings.Cut(m.Name, "_avg_")
	if !found || strings.Contains(m.Name, "max_avg_") {
		return usual
	}

	if i := strings.IndexByte(after, '_'); i >= 0 {
		after = after[:i]
	}

	window, err := time.ParseDuration(after)
	if err != nil || window <= 0 || window > 24*time.Hour {
		return usual
	}

	return window
}

// ParseErrors counts invalid annotations, by error.
type ParseErrors struct {
	Form, Value, Time int
}

// Read parses the loads in a node's annotations, in the order of the policy's metrics; the zero Sample for missing
// and invalid ones.
func (r *Rules) Read(format Format, annotations map[string]string) ([]Sample, ParseErrors) {
	samples := make([]Sample, len(r.Policy.Metrics))
	var bad ParseErrors
	for i, m := range r.Policy.Metrics {
		text, found := annotations[m.Name]
		if !found {
			continue
		}

		sample, err := format.ParseLoad(text)
		switch {
		case err == nil:
			samples[i] = sample
		case errors.Is(err, ErrValue):
			bad.Value++
		case errors.Is(err, ErrTime):
			bad.Time++
		default:
			bad.Form++
		}
	}

	return samples, bad
}

// GaugeSample returns the sample of the Gauge of a resource; the zero Sample if there is none.
func (r *Rules) GaugeSample(resource units.Resource, samples []Sample) Sample {
	k := kindOf(resource)
	if k == kindOther || r.gauges[k] < 0 {
		return Sample{}
	}

	return samples[r.gauges[k]]
}

// Horizon returns how long after its start a pod can be arriving: after it every metric covers the pod.
func (r *Rules) Horizon() time.Duration {
	var longest time.Duration
	for i, m := range r.Policy.Metrics {
		if r.counting[i] {
			longest = max(longest, m.Active()+r.windows[i])
		}
	}

	return longest + Warmup
}

func (r *Rules) share(a Amount, k kind, inverse [kinds]float64) units.Ratio {
	if k == kindOther {
		return 0
	}

	return units.Ratio(a.of(k) * inverse[k])
}

// WaterMarks are the usage marks of one resource that scheduler, rebalancing and node agent share, as fractions of a
// node's capacity. They are in order, so that nothing is scheduled onto a node from which pods are evicted.
type WaterMarks struct {
	// Low is the mark below which a node receives pods of overloaded nodes.
	Low units.Ratio
	// Schedule is the mark above which a node takes no new pod.
	Schedule units.Ratio
	// Evict is the mark above which pods leave a node.
	Evict units.Ratio
}

// Check fails where the marks are not 0 <= low < schedule < evict <= 1. NaN is in no order.
func (w WaterMarks) Check() error {
	if 0 <= w.Low && w.Low < w.Schedule && w.Schedule < w.Evict && w.Evict <= 1 {
		return nil
	}

	return fmt.Errorf("want 0 <= low < schedule < evict <= 1, got low %v, schedule %v, evict %v", w.Low, w.Schedule, w.Evict)
}

// ClosesAt is the load above which Filter rejects a node: the lower of a predicate's limit and the mark schedule. A limit
// of 0 is switched off, and so is a mark of 0, which stands for none; 0 is returned where both are off.
func ClosesAt(limit, schedule units.Ratio) units.Ratio {
	switch {
	case limit == 0:
		return schedule
	case schedule == 0:
		return limit
	}

	return min(limit, schedule)
}
