// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

func TestNewPolicy_Default(t *testing.T) {
	p, err := nodeload.NewPolicy(nodeload.GocraneSpec())
	if err != nil {
		t.Fatal(err)
	}

	if len(p.Metrics) != 6 || len(p.Limits) != 4 || len(p.Weights) != 6 || len(p.Warnings) != 0 {
		t.Fatalf("NewPolicy = %+v, want 6 metrics, 4 limits, 6 weights and no warnings", p)
	}

	var sum float64
	for _, w := range p.Weights {
		sum += w.Weight
	}

	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("the weights add up to %v, want 1", sum)
	}
	if at, ok := p.Gauge(units.Memory); !ok || p.Metrics[at].Name != "mem_usage_avg_5m" {
		t.Errorf("Gauge of memory = %d, %v, want mem_usage_avg_5m", at, ok)
	}
	if p.Metrics[0].Active() != 8*time.Minute {
		t.Errorf("Active = %v, want 8m", p.Metrics[0].Active())
	}
}

// limits returns the limits of Filter, by name.
func limits(p *nodeload.Policy) map[string]nodeload.Limit {
	out := map[string]nodeload.Limit{}
	for _, l := range p.Limits {
		name := p.Metrics[l.Metric].Name
		l.Metric = 0
		out[name] = l
	}

	return out
}

func TestNewPolicy_WaterMarks(t *testing.T) {
	spec := nodeload.GocraneSpec()
	spec.Marks = map[units.Resource]nodeload.WaterMarks{
		units.CPU:    {Low: 0.3, Schedule: 0.7, Evict: 0.85},
		units.Memory: {Low: 0.3, Schedule: 0.6, Evict: 0.9},
	}

	// The mark applies although the predicate is disabled.
	spec.Predicates[2].Max = 0

	p, err := nodeload.NewPolicy(spec)
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]nodeload.Limit{
		"cpu_usage_avg_5m":     {Max: 0.65},
		"cpu_usage_max_avg_1h": {Max: 0.7, Mark: true},
		"mem_usage_avg_5m":     {Max: 0.6, Mark: true},
		"mem_usage_max_avg_1h": {Max: 0.6, Mark: true},
	}

	got := limits(p)
	if len(got) != len(want) {
		t.Fatalf("limits %v, want %v", got, want)
	}

	for name, l := range want {
		if got[name] != l {
			t.Errorf("limit of %s = %+v, want %+v", name, got[name], l)
		}
	}

	for _, l := range p.Limits {
		if marks, ok := p.Marks[p.Metrics[l.Metric].Resource]; ok && l.Max >= marks.Evict {
			t.Errorf("the limit of %s is %v, want below the mark evict %v", p.Metrics[l.Metric].Name, l.Max, marks.Evict)
		}
	}
}

func TestClosesAt(t *testing.T) {
	for _, test := range [][3]units.Ratio{{0.65, 0.7, 0.65}, {0.75, 0.7, 0.7}, {0, 0.7, 0.7}, {0.65, 0, 0.65}, {0, 0, 0}} {
		if got := nodeload.ClosesAt(test[0], test[1]); got != test[2] {
			t.Errorf("limit %v, schedule %v: closes at %v, want %v", test[0], test[1], got, test[2])
		}
	}
}

func TestNewPolicy_PartsWithoutEffect(t *testing.T) {
	p, err := nodeload.NewPolicy(nodeload.Spec{
		Metrics:    []nodeload.Metric{{Name: "load", Period: time.Minute}},
		Predicates: []nodeload.NamedLimit{{Name: "cpu_usage", Max: 0.5}},
		Priorities: []nodeload.NamedWeight{{Name: "mem_usage", Weight: 1}},
		Marks:      map[units.Resource]nodeload.WaterMarks{units.CPU: {Low: 0.1, Schedule: 0.2, Evict: 0.3}},
	})
	if err != nil {
		t.Fatal(err)
	}

	if len(p.Limits) != 0 || len(p.Weights) != 0 || len(p.Warnings) != 3 {
		t.Errorf("NewPolicy with metrics that are not read = %+v, want 3 warnings, no limits and no weights", p)
	}
}

// TestNewPolicy_MetricsServerMemory checks that memory of metrics-server, which includes page cache, is accepted with a warning.
func TestNewPolicy_MetricsServerMemory(t *testing.T) {
	p, err := nodeload.NewPolicy(nodeload.Spec{Metrics: []nodeload.Metric{
		{Name: "cpu_usage_active", Period: time.Minute, From: nodeload.FromMetricsServer},
		{Name: "mem_usage_active", Period: time.Minute, From: nodeload.FromMetricsServer},
	}})
	if err != nil || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "page cache") {
		t.Errorf("NewPolicy with memory of metrics-server = %+v, %v, want a warning about page cache", p, err)
	}
}

func TestNewPolicy_Invalid(t *testing.T) {
	metrics := []nodeload.Metric{{Name: "a", Period: time.Minute}}
	for name, test := range map[string]struct {
		spec nodeload.Spec
		want string
	}{
		"no name":      {nodeload.Spec{Metrics: []nodeload.Metric{{Period: time.Minute}}}, "want a unique name"},
		"prefix":       {nodeload.Spec{Metrics: []nodeload.Metric{{Name: "karpenter.sh/do-not-disrupt", Period: time.Minute}}}, "want a name without a slash"},
		"no period":    {nodeload.Spec{Metrics: []nodeload.Metric{{Name: "a"}}}, "a period of more than 0"},
		"twice":        {nodeload.Spec{Metrics: append(slices.Clone(metrics), metrics...)}, "want a unique name"},
		"limit":        {nodeload.Spec{Metrics: metrics, Predicates: []nodeload.NamedLimit{{Name: "a", Max: 65}}}, "want a limit from 0 to 1"},
		"limit NaN":    {nodeload.Spec{Metrics: metrics, Predicates: []nodeload.NamedLimit{{Name: "a", Max: units.Ratio(math.NaN())}}}, "want a limit"},
		"zero weights": {nodeload.Spec{Metrics: metrics, Priorities: []nodeload.NamedWeight{{Name: "a"}}}, "the sum of the weights"},
		"weight NaN":   {nodeload.Spec{Metrics: metrics, Priorities: []nodeload.NamedWeight{{Name: "a", Weight: math.NaN()}}}, "want a weight"},
		"huge weights": {nodeload.Spec{Metrics: metrics, Priorities: []nodeload.NamedWeight{{Name: "a", Weight: 1e308}, {Name: "a", Weight: 1e308}}}, "the sum of the weights"},
		"count 0":      {nodeload.Spec{Metrics: metrics, Hot: []nodeload.HotRange{{Range: time.Minute}}}, "a count of 1 or more"},
		"marks": {nodeload.Spec{Metrics: metrics, Marks: map[units.Resource]nodeload.WaterMarks{
			units.CPU: {Low: 0.5, Schedule: 0.9, Evict: 0.8},
		}}, "low < schedule < evict"},
	} {
		if p, err := nodeload.NewPolicy(test.spec); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v, want an error with %q", name, p, err, test.want)
		}
	}
}

func TestHotValue(t *testing.T) {
	ranges := nodeload.GocraneSpec().Hot
	for _, test := range [][3]int64{{0, 0, 0}, {4, 1, 0}, {5, 1, 1}, {14, 7, 5}} {
		if got := nodeload.HotValue(ranges, test[:2]); got != test[2] {
			t.Errorf("%d in five minutes and %d in one: %d, want %d", test[0], test[1], got, test[2])
		}
	}
}
