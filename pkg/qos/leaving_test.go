// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// memoryRule evicts above 1000 bytes, without excess.
func memoryRule() Policy {
	limits := DefaultLimits()
	limits.Excess = 0
	return Policy{Limits: limits, Rules: []Rule{{
		Name: "r", Metric: "memory_total_usage", Above: 1000, Trigger: 1, Restore: 1, MaxAge: time.Minute, Action: Action{Name: "a", Evict: &Evicting{}},
	}}}
}

// tight is a node that uses so much, with pods of these uses, the first of lowest priority.
func tight(seconds int, used float64, uses ...int64) *Observation {
	o := observation(seconds, "memory_total_usage", used)
	for i, use := range uses {
		name := fmt.Sprint("p", i)
		p := Pod{UID: name, Namespace: "n", Name: name, Priority: int32(i), Class: Burstable, Grace: 30 * time.Second, Allowed: []string{"a"}}
		p.UsedMemory = Measured[series.Bytes]{Value: series.Bytes(use), At: at(seconds)}
		o.Pods = append(o.Pods, p)
	}
	return o
}

func names(list []Eviction) (out []string) {
	for _, e := range list {
		out = append(out, e.Pod.Name)
	}
	return out
}

// TestAsked: while an answer is out nobody is chosen in the place of who was asked, even where the order has changed meanwhile, and it
// counts for the node's limit.
func TestAsked(t *testing.T) {
	policy := memoryRule()
	var s State
	plan := Decide(&policy, tight(0, 1500, 600, 600, 600), &s)
	if got := names(plan.Evictions); !slices.Equal(got, []string{"p0"}) {
		t.Fatalf("%v", got)
	}
	s.Asked(plan.Evictions[0], plan.At)
	for second := 1; second < 120; second++ {
		o := tight(second, 1500, 600, 600, 600)
		o.Pods[0].Priority = 100
		if got := Decide(&policy, o, &s); len(got.Evictions) > 0 || got.Rules[0].Going != 600 && second <= 90 {
			t.Fatalf("second %d: %v, going %g", second, names(got.Evictions), got.Rules[0].Going)
		}
		if second == 89 {
			break // From then on it counts as stuck, and somebody else has to go.
		}
	}
	policy.Limits.Evictions = 1
	got := Decide(&policy, tight(90, 5000, 600, 600, 600), &s)
	if len(got.Evictions) > 0 || got.Rules[0].Withheld != ByRate {
		t.Errorf("one is asked and one is allowed: %v, %+v", names(got.Evictions), got.Rules[0])
	}
	s.Failed(plan.Evictions[0].Pod)
	if got := Decide(&policy, tight(91, 1500, 600, 600, 600), &s); !slices.Equal(names(got.Evictions), []string{"p0"}) {
		t.Errorf("it has come to nothing: %v", names(got.Evictions))
	}
}

// TestUnmeasuredLeaver: what a pod that is ending uses does not become nothing because nobody can measure it any more.
func TestUnmeasuredLeaver(t *testing.T) {
	policy := memoryRule()
	var s State
	plan := Decide(&policy, tight(0, 1500, 600, 600), &s)
	s.Evicted(plan.Evictions[0].Pod, plan.At, 30*time.Second)
	Decide(&policy, tight(1, 1500, 600, 600), &s)
	o := tight(2, 1500, 600, 600)
	o.Pods[0].UsedMemory = Measured[series.Bytes]{}
	if got := Decide(&policy, o, &s); len(got.Evictions) > 0 || got.Rules[0].Going != 600 {
		t.Errorf("%v, going %g", names(got.Evictions), got.Rules[0].Going)
	}
}

// TestHoldEvictions: nobody is evicted for the time, whatever the rule; a clock that is set back does not make it longer.
func TestHoldEvictions(t *testing.T) {
	policy := memoryRule()
	for _, back := range []int{0, -100_000} {
		var s State
		s.HoldEvictions(at(0), 30*time.Second, "the cluster's budget is used up")
		for second := range 30 {
			got := Decide(&policy, tight(back+second, 1500, 600), &s)
			if f := got.Rules[0]; len(got.Evictions) > 0 || f.Withheld != ByHold || !strings.Contains(f.Why, "budget is used up") || f.Short != 500 {
				t.Fatalf("second %d: %v, %+v", second, names(got.Evictions), f)
			}
		}
		if got := Decide(&policy, tight(back+31, 1500, 600), &s); len(got.Evictions) != 1 || got.Rules[0].Withheld != NotWithheld {
			t.Errorf("afterwards: %v, %+v", names(got.Evictions), got.Rules[0])
		}
	}
}

// TestWithheldInAWord: each reason for which nobody is evicted.
func TestWithheldInAWord(t *testing.T) {
	for want, change := range map[Withholding]func(p *Policy, o *Observation, s *State){
		NotWithheld: func(*Policy, *Observation, *State) {},
		ByNobody:    func(_ *Policy, o *Observation, _ *State) { o.Pods[0].Keep = "static pod" },
		ByWaterMark: func(p *Policy, o *Observation, _ *State) {
			p.Marks = map[Resource]series.Ratio{Memory: 0.9}
			o.Node.UsedMemory = Measured[series.Bytes]{Value: 1500, At: o.At}
		},
		ByRate: func(_ *Policy, o *Observation, s *State) {
			for i := range 5 {
				s.Evicted(PodRef{UID: fmt.Sprint("gone", i)}, o.At.Add(-30*time.Second), 0)
			}
		},
	} {
		policy, o := memoryRule(), tight(0, 1500, 600)
		var s State
		change(&policy, o, &s)
		got := Decide(&policy, o, &s)
		if f := got.Rules[0]; f.Withheld != want || (len(got.Evictions) == 0) != (want != NotWithheld) || (f.Why == "") != (want == NotWithheld) || f.Action != "a" {
			t.Errorf("want %q: %v, %+v", want, names(got.Evictions), f)
		}
	}
}

// TestWhoHasTheMemory: where pods wait for memory the one that has the most of it goes, not the one that uses cpu.
func TestWhoHasTheMemory(t *testing.T) {
	for metric, want := range map[string]string{"node_pressure_memory_some_avg10_ratio": "p1", "node_pressure_cpu_some_avg10_ratio": "p0"} {
		policy := memoryRule()
		policy.Rules[0].Metric, policy.Rules[0].Above = metric, 0.1
		o := observation(0, metric, 0.5)
		o.Pods = tight(0, 0, 100, 900).Pods
		for i := range o.Pods {
			o.Pods[i].Priority = 0
			o.Pods[i].UsedCPU = Measured[series.MilliCPU]{Value: series.MilliCPU(1000 - 900*i), At: o.At}
		}
		got := Decide(&policy, o, &State{})
		if !slices.Equal(names(got.Evictions), []string{want}) {
			t.Errorf("%s: %v", metric, names(got.Evictions))
		}
	}
}

// TestExactlyAsMany: for any pods and any gap, without one of the victims the gap would not be closed, and with them it is, unless all
// that may go do.
func TestExactlyAsMany(t *testing.T) {
	for seed := range 300 {
		var uses []int64
		total := int64(0)
		for i := range 1 + seed%7 {
			uses = append(uses, int64(1+(seed*7919+i*104729)%997))
			total += uses[i]
		}
		gap := float64(1 + (seed*31337)%1500)
		policy := memoryRule()
		policy.Limits.Evictions = len(uses)
		got := Decide(&policy, tight(0, 1000+gap, uses...), &State{}).Evictions
		freed := 0.0
		for _, e := range got {
			freed += e.Frees
		}
		if freed < gap && len(got) < len(uses) && float64(total) >= gap*1.1 {
			t.Fatalf("%v for %g: %v are not enough", uses, gap, names(got))
		}
		for _, e := range got {
			if freed-e.Frees >= gap {
				t.Fatalf("%v for %g: %v, and %s is not needed", uses, gap, names(got), e.Pod.Name)
			}
		}
	}
}

// TestGoneIsStillMeasured: the first measurement without a pod covers time in which it was still there, so that nobody goes in its place for
// it; the second one counts.
func TestGoneIsStillMeasured(t *testing.T) {
	policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "r", Metric: "memory_total_usage", Above: 10 << 30, Trigger: 1, Restore: 1, MaxAge: time.Minute, Action: Action{Name: "evict", Evict: &Evicting{}},
	}}}
	var state State
	tick := func(second int, names ...string) []Eviction {
		o := observation(second, "memory_total_usage", 13<<30)
		for _, name := range names {
			o.Pods = append(o.Pods, Pod{
				UID: name, Namespace: "n", Name: name, Class: BestEffort, Allowed: []string{"evict"}, Grace: 30 * time.Second,
				UsedMemory: Measured[series.Bytes]{Value: 4 << 30, At: o.At},
			})
		}
		plan := Decide(&policy, o, &state)
		for _, e := range plan.Evictions {
			state.Evicted(e.Pod, o.At, e.Takes)
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
