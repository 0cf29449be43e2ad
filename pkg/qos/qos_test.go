// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

func at(seconds int) time.Time { return time.Unix(1_000_000+int64(seconds), 0) }

// observation returns one with a single metric.
func observation(seconds int, metric string, value float64) *Observation {
	return &Observation{
		At: at(seconds), Node: Node{CPUs: 8000, Memory: 32 << 30},
		Samples: map[string][]Sample{metric: {{Value: value, At: at(seconds)}}},
	}
}

// TestEvaluate_Thresholds checks that only consecutive measurements count, in both directions.
func TestEvaluate_Thresholds(t *testing.T) {
	policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "r", Metric: "cpu_load_1_min", Threshold: 10, TriggerCount: 3, RestoreCount: 2, MaxAge: time.Minute, Action: Action{Name: "a", CoolDown: time.Second},
	}}}

	var state State
	for i, step := range []struct {
		value float64
		want  Phase
	}{
		{11, Rising},
		{11, Rising},
		{10, Calm},
		{11, Rising},
		{11, Rising},
		{11, Firing},
		{11, Firing},
		{9, Falling},
		{11, Firing},
		{9, Falling},
		{9, Calm},
		{11, Rising},
		{math.NaN(), Unknown},
		{11, Rising},
		{11, Rising},
		{11, Firing},
		{math.Inf(1), Held},
		{9, Falling},
		{9, Calm},
	} {
		plan := Decide(&policy, observation(i, "cpu_load_1_min", step.value), &state)
		if got := plan.Rules[0]; got.Phase != step.want {
			t.Errorf("measurement %d, %g: %s, want %s", i, step.value, got.Phase, step.want)
		}
	}
}

// TestEvaluate_SameMeasurement checks that a measurement counts once.
func TestEvaluate_SameMeasurement(t *testing.T) {
	policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "r", Metric: "cpu_load_1_min", Threshold: 10, TriggerCount: 2, RestoreCount: 1, MaxAge: time.Minute, Action: Action{Name: "a"},
	}}}

	var state State
	o := observation(0, "cpu_load_1_min", 11)
	for i := range 5 {
		o.At = at(i)
		if got := Decide(&policy, o, &state).Rules[0]; got.Phase != Rising || got.Count != 1 {
			t.Errorf("look %d: %+v, want Rising with a count of 1", i, got)
		}
	}

	if got := Decide(&policy, observation(5, "cpu_load_1_min", 11), &state).Rules[0]; got.Phase != Firing {
		t.Errorf("after the second measurement: %+v, want Firing", got)
	}
}

// TestEvaluate_Unknown checks the reasons for an unknown metric.
func TestEvaluate_Unknown(t *testing.T) {
	stale := observation(100, "cpu_load_1_min", 11)
	stale.Samples["cpu_load_1_min"][0].At = at(0)
	future := observation(100, "cpu_load_1_min", 11)

	future.Samples["cpu_load_1_min"][0].At = at(1000)
	for want, test := range map[string]struct {
		metric  string
		selects func(map[string]string) bool
		o       *Observation
	}{
		"unknown metric":             {"cpu_lood", nil, observation(0, "cpu_lood", 11)},
		"the metric is missing":      {"cpu_load_5_min", nil, observation(0, "cpu_load_1_min", 11)},
		"no series has the selected": {"cpu_load_1_min", func(map[string]string) bool { return false }, observation(0, "cpu_load_1_min", 11)},
		"of the last 1m0s":           {"cpu_load_1_min", nil, stale},
		"no measurement":             {"cpu_load_1_min", nil, future},
	} {
		policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{Name: "r", Metric: test.metric, Threshold: 1, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Matches: test.selects}}}
		if got := Decide(&policy, test.o, &State{}).Rules[0]; got.Phase != Unknown || !strings.Contains(got.Reason, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

func TestLookup(t *testing.T) {
	for name, want := range map[string]Metric{
		"cpu_total_usage":                      {Resource: units.CPU, Unit: "millicores", Settle: 10 * time.Second},
		"memory_total_utilization":             {Resource: units.Memory, Unit: "percent", Settle: 10 * time.Second},
		"node_pressure_cpu_some_avg10_ratio":   {Unit: "ratio", Settle: 10 * time.Second},
		"pod_pressure_memory_full_avg60_ratio": {Unit: "ratio", Settle: time.Minute},
		"cpu_load_15_min":                      {Unit: "threads", Settle: 15 * time.Minute},
	} {
		if got, ok := Lookup(name); !ok || got.Resource != want.Resource || got.Unit != want.Unit || got.Settle != want.Settle || got.Name != name {
			t.Errorf("Lookup(%q) = %+v, %t, want %+v", name, got, ok, want)
		}
	}

	for _, name := range []string{
		"", "cpu", "node_pressure_", "node_pressure_cpu_some_avg10", "node_pressure_gpu_some_avg10_ratio", "node_pressure_cpu_most_avg10_ratio",
		"node_pressure_cpu_some_avg300_ratio", "host_pressure_cpu_some_avg10_ratio", "pod_pressure_cpu_some_avg10_ratio_x",
	} {
		if got, ok := Lookup(name); ok {
			t.Errorf("Lookup(%q) = %+v, want no metric", name, got)
		}
	}
}

// TestToAmount checks the conversion to millicores and bytes.
func TestToAmount(t *testing.T) {
	n := Node{CPUs: 8000, Memory: 1000}
	for name, want := range map[string]float64{
		"cpu_total_usage": 2, "cpu_total_utilization": 160, "node_cpu_usage_cores": 2000, "node_cpu_usage_ratio": 16000,
		"memory_total_usage": 2, "memory_total_utilization": 20, "node_memory_usage_ratio": 2000,
	} {
		m, _ := Lookup(name)
		if got, ok := m.toAmount(2, n); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("toAmount(2) of %s = %g, %t, want %g", name, got, ok, want)
		}
	}

	m, _ := Lookup("cpu_total_utilization")
	if _, ok := m.toAmount(2, Node{}); ok {
		t.Error("toAmount of a share of an unknown capacity = true, want false")
	}

	m, _ = Lookup("cpu_load_1_min")
	if _, ok := m.toAmount(2, n); ok {
		t.Error("toAmount of a load = true, want false")
	}
}

// TestThrottleRecords checks that a record keeps the state before the first step and is dropped at the full restore.
func TestThrottleRecords(t *testing.T) {
	var s State
	throttle := func(id string, from, to Quota, frees units.MilliCPU) {
		s.RecordThrottle(Throttle{ContainerID: id, From: from, To: to, Original: Unlimited, Freed: frees, Step: 0.5})
	}
	throttle("b", Unlimited, 500, 300)
	throttle("a", Unlimited, 700, 100)
	throttle("b", 500, 250, 100)

	if b := s.quotas["b"]; len(s.quotas) != 2 || b.Set != 250 || b.Before != 800 || b.Step != 0.5 || b.Original != Unlimited {
		t.Errorf("record of b = %+v, want 250 set, 800 before and no original limit", b)
	}

	throttle("b", 250, Unlimited, -500)
	if len(s.quotas) != 1 || s.quotas.contains("b") {
		t.Errorf("records %+v, want only a after b was restored", s.quotas)
	}
}

// TestThrottleRecordWhileWritten checks that a memory limit being written is recognized before and after it is in force.
func TestThrottleRecordWhileWritten(t *testing.T) {
	c := Container{ID: "c", MemoryHigh: 800 << 20}
	o := Observation{Pods: []Pod{{Containers: []Container{c}}}}
	see := func(s *State, high MemoryHigh) *throttleRecord[MemoryHigh] {
		o.Pods[0].Containers[0].MemoryHigh = high
		s.reconcile(&o, DefaultLimits())
		return s.highs["c"]
	}

	var s State
	first := MemoryThrottle{ContainerID: "c", From: NoMemoryHigh, To: 800 << 20, Original: NoMemoryHigh, Freed: 200 << 20}
	s.BeginMemoryThrottle(first)
	s.RecordMemoryThrottle(first)
	next := MemoryThrottle{ContainerID: "c", From: 800 << 20, To: 600 << 20, Original: NoMemoryHigh, Freed: 200 << 20}
	s.BeginMemoryThrottle(next)

	for _, high := range []MemoryHigh{800 << 20, 600 << 20, 600<<20 - 4096} {
		if k := see(&s, high); k == nil || k.Before != 1000<<20 {
			t.Fatalf("record at the limit %s = %+v, want it kept with 1000 MiB before", high, k)
		}
	}

	s.RecordMemoryThrottle(next)
	if k := see(&s, 600<<20); k == nil || k.Set != 600<<20 || k.Before != 1000<<20 {
		t.Fatalf("record = %+v, want 600 MiB set and 1000 MiB before", k)
	}

	if k := see(&s, 800<<20); k != nil {
		t.Errorf("record at a limit of another process = %+v, want none", k)
	}
}
