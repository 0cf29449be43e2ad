// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// memoryRule evicts above 1000 bytes, without excess.
func memoryRule() Policy {
	limits := DefaultLimits()
	limits.Excess = 0
	return Policy{Limits: limits, Rules: []Rule{{
		Name: "r", Metric: "memory_total_usage", Threshold: 1000, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Action: Action{Name: "a", Evict: &EvictionSettings{}},
	}}}
}

// memoryObservation returns a node with the given use and pods, the first one of the lowest priority.
func memoryObservation(seconds int, used float64, uses ...int64) *Observation {
	o := observation(seconds, "memory_total_usage", used)
	for i, use := range uses {
		name := fmt.Sprint("p", i)
		p := Pod{UID: name, Namespace: "n", Name: name, Priority: int32(i), Class: Burstable, Grace: 30 * time.Second, Allowed: []string{"a"}}
		p.UsedMemory = Measurement[units.Bytes]{Value: units.Bytes(use), At: at(seconds)}
		o.Pods = append(o.Pods, p)
	}

	return o
}

func podNames(list []Eviction) (out []string) {
	for _, e := range list {
		out = append(out, e.Pod.Name)
	}

	return out
}

// TestBeginEviction checks that an open eviction is not replaced by another one, even if the order changes, and counts for the rate limit.
func TestBeginEviction(t *testing.T) {
	policy := memoryRule()
	var s State

	plan := Decide(&policy, memoryObservation(0, 1500, 600, 600, 600), &s)
	if got := podNames(plan.Evictions); !slices.Equal(got, []string{"p0"}) {
		t.Fatalf("evictions %v, want p0", got)
	}

	s.BeginEviction(plan.Evictions[0], plan.At)
	for second := 1; second < 120; second++ {
		o := memoryObservation(second, 1500, 600, 600, 600)
		o.Pods[0].Priority = 100
		if got := Decide(&policy, o, &s); len(got.Evictions) > 0 || got.Rules[0].PendingRelease != 600 && second <= 90 {
			t.Fatalf("second %d: evictions %v, pending release %g, want none and 600", second, podNames(got.Evictions), got.Rules[0].PendingRelease)
		}

		if second == 89 {
			break // It counts as stuck from here on, and another pod is evicted.
		}
	}

	policy.Limits.MaxEvictions = 1
	got := Decide(&policy, memoryObservation(90, 5000, 600, 600, 600), &s)
	if len(got.Evictions) > 0 || got.Rules[0].Withheld != WithheldByRate {
		t.Errorf("with one requested eviction and one allowed: %v, %+v, want none because of the rate", podNames(got.Evictions), got.Rules[0])
	}

	s.RecordFailure(plan.Evictions[0].Pod)
	if got := Decide(&policy, memoryObservation(91, 1500, 600, 600, 600), &s); !slices.Equal(podNames(got.Evictions), []string{"p0"}) {
		t.Errorf("evictions after a failed request: %v, want p0 again", podNames(got.Evictions))
	}
}

// TestPendingRelease_Unmeasured checks that the use of a terminating pod that is no longer measured is kept.
func TestPendingRelease_Unmeasured(t *testing.T) {
	policy := memoryRule()
	var s State
	plan := Decide(&policy, memoryObservation(0, 1500, 600, 600), &s)
	s.RecordEviction(plan.Evictions[0].Pod, plan.At, 30*time.Second)
	Decide(&policy, memoryObservation(1, 1500, 600, 600), &s)

	o := memoryObservation(2, 1500, 600, 600)
	o.Pods[0].UsedMemory = Measurement[units.Bytes]{}
	if got := Decide(&policy, o, &s); len(got.Evictions) > 0 || got.Rules[0].PendingRelease != 600 {
		t.Errorf("evictions %v, pending release %g, want none and 600", podNames(got.Evictions), got.Rules[0].PendingRelease)
	}
}

// TestPauseEvictions checks that no pod is evicted during a pause, and that a clock set back does not extend it.
func TestPauseEvictions(t *testing.T) {
	policy := memoryRule()
	for _, back := range []int{0, -100_000} {
		var s State
		s.PauseEvictions(at(0), 30*time.Second, "the cluster's budget is used up")

		for second := range 30 {
			got := Decide(&policy, memoryObservation(back+second, 1500, 600), &s)
			if f := got.Rules[0]; len(got.Evictions) > 0 || f.Withheld != WithheldByPause || !strings.Contains(f.Reason, "budget is used up") || f.Shortfall != 500 {
				t.Fatalf("second %d of the pause: %v, %+v, want none and a shortfall of 500", second, podNames(got.Evictions), f)
			}
		}

		if got := Decide(&policy, memoryObservation(back+31, 1500, 600), &s); len(got.Evictions) != 1 || got.Rules[0].Withheld != NotWithheld {
			t.Errorf("after the pause: %v, %+v, want one eviction", podNames(got.Evictions), got.Rules[0])
		}
	}
}

// TestWithholdReasons covers every reason not to evict.
func TestWithholdReasons(t *testing.T) {
	for want, change := range map[WithholdReason]func(p *Policy, o *Observation, s *State){
		NotWithheld:         func(*Policy, *Observation, *State) {},
		WithheldNoCandidate: func(_ *Policy, o *Observation, _ *State) { o.Pods[0].ExemptReason = "static pod" },
		WithheldByWaterMark: func(p *Policy, o *Observation, _ *State) {
			p.WaterMarks = map[units.Resource]units.Ratio{units.Memory: 0.9}
			o.Node.UsedMemory = Measurement[units.Bytes]{Value: 1500, At: o.At}
		},
		WithheldByRate: func(_ *Policy, o *Observation, s *State) {
			for i := range 5 {
				s.RecordEviction(PodRef{UID: fmt.Sprint("gone", i)}, o.At.Add(-30*time.Second), 0)
			}
		},
	} {
		policy := memoryRule()
		o := memoryObservation(0, 1500, 600)
		var s State
		change(&policy, o, &s)

		got := Decide(&policy, o, &s)
		if f := got.Rules[0]; f.Withheld != want || (len(got.Evictions) == 0) != (want != NotWithheld) || (f.Reason == "") != (want == NotWithheld) || f.Action != "a" {
			t.Errorf("want %q: %v, %+v", want, podNames(got.Evictions), f)
		}
	}
}

// TestDecide_LargestMemoryUser checks that a rule on memory pressure evicts the largest user of memory and not of CPU.
func TestDecide_LargestMemoryUser(t *testing.T) {
	for metric, want := range map[string]string{"node_pressure_memory_some_avg10_ratio": "p1", "node_pressure_cpu_some_avg10_ratio": "p0"} {
		policy := memoryRule()
		policy.Rules[0].Metric = metric
		policy.Rules[0].Threshold = 0.1

		o := observation(0, metric, 0.5)
		o.Pods = memoryObservation(0, 0, 100, 900).Pods
		for i := range o.Pods {
			o.Pods[i].Priority = 0
			o.Pods[i].UsedCPU = Measurement[units.MilliCPU]{Value: units.MilliCPU(1000 - 900*i), At: o.At}
		}

		got := Decide(&policy, o, &State{})
		if !slices.Equal(podNames(got.Evictions), []string{want}) {
			t.Errorf("%s: evictions %v, want %s", metric, podNames(got.Evictions), want)
		}
	}
}

// TestChooseVictims_Minimal checks for random pods and gaps that every victim is needed and that the victims close the gap if possible.
func TestChooseVictims_Minimal(t *testing.T) {
	for seed := range 300 {
		var uses []int64
		total := int64(0)
		for i := range 1 + seed%7 {
			uses = append(uses, int64(1+(seed*7919+i*104729)%997))
			total += uses[i]
		}

		gap := float64(1 + (seed*31337)%1500)
		policy := memoryRule()
		policy.Limits.MaxEvictions = len(uses)

		got := Decide(&policy, memoryObservation(0, 1000+gap, uses...), &State{}).Evictions
		freed := 0.0
		for _, e := range got {
			freed += e.Freed
		}

		if freed < gap && len(got) < len(uses) && float64(total) >= gap*1.1 {
			t.Fatalf("evictions %v of pods with %v, want enough for a gap of %g", podNames(got), uses, gap)
		}

		for _, e := range got {
			if freed-e.Freed >= gap {
				t.Fatalf("evictions %v of pods with %v for a gap of %g, want no %s: the others suffice", podNames(got), uses, gap, e.Pod.Name)
			}
		}
	}
}

// TestPendingRelease_PodGone checks that the first measurement without a pod still counts it, and the second does not.
func TestPendingRelease_PodGone(t *testing.T) {
	policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "r", Metric: "memory_total_usage", Threshold: 10 << 30, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Action: Action{Name: "evict", Evict: &EvictionSettings{}},
	}}}

	var state State
	tick := func(second int, names ...string) []Eviction {
		o := observation(second, "memory_total_usage", 13<<30)
		for _, name := range names {
			o.Pods = append(o.Pods, Pod{
				UID: name, Namespace: "n", Name: name, Class: BestEffort, Allowed: []string{"evict"}, Grace: 30 * time.Second,
				UsedMemory: Measurement[units.Bytes]{Value: 4 << 30, At: o.At},
			})
		}

		plan := Decide(&policy, o, &state)
		for _, e := range plan.Evictions {
			state.RecordEviction(e.Pod, o.At, e.GracePeriod)
		}

		return plan.Evictions
	}

	for second, step := range []struct {
		pods []string
		want string
	}{{[]string{"a", "b"}, "a"}, {[]string{"a", "b"}, ""}, {[]string{"b"}, ""}, {[]string{"b"}, "b"}} {
		got := []string{}
		for _, e := range tick(second, step.pods...) {
			got = append(got, e.Pod.Name)
		}

		if got := strings.Join(got, ""); got != step.want {
			t.Errorf("second %d, pods %v: evicts %q, want %q", second, step.pods, got, step.want)
		}
	}
}
