// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// inheritedFixture is a node with a pod whose limits a previous process lowered: to 700m of 4 cores and to 1 of 4 GiB.
type inheritedFixture struct {
	policy  Policy
	state   State
	seconds int
}

func newInheritedFixture() *inheritedFixture {
	f := &inheritedFixture{policy: Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "r", Metric: "cpu_total_usage", Threshold: 4000, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute,
		Action: Action{Name: "a", Throttle: &CPUThrottling{Step: 0.5}, ThrottleMemory: &MemoryThrottleSettings{}},
	}}}}

	f.state.InheritQuota("c", 4000, 700)
	f.state.InheritMemoryHigh("c", 4<<30, 1<<30)
	return f
}

// decide returns the plan for a use of the node's CPUs and the container's requests.
func (f *inheritedFixture) decide(used float64, request units.MilliCPU, memory units.Bytes) Plan {
	f.seconds++
	o := observation(f.seconds, "cpu_total_usage", used)
	now := o.At
	o.Pods = []Pod{{UID: "p", Allowed: []string{"a"}, UsedCPU: Measurement[units.MilliCPU]{700, now}, Containers: []Container{{
		ID: "c", Quota: 700, Request: request, UsedCPU: Measurement[units.MilliCPU]{700, now}, MemoryHigh: 1 << 30, RequestMemory: memory,
	}}}}

	return Decide(&f.policy, o, &f.state)
}

// TestDecide_InheritedLimits checks that inherited limits stay on a calm node, however long their container is not listed.
func TestDecide_InheritedLimits(t *testing.T) {
	f := newInheritedFixture()
	for range 2 * forgetAfter {
		f.seconds++
		Decide(&f.policy, observation(f.seconds, "cpu_total_usage", 1000), &f.state)
	}

	plan := f.decide(1000, 500, 1<<30)
	if len(plan.Throttles)+len(plan.MemoryThrottles) > 0 || f.state.IsThrottled("c") || f.state.IsMemoryThrottled("c") {
		t.Errorf("Decide on a calm node planned %+v and %+v, want no change of the inherited limits", plan.Throttles, plan.MemoryThrottles)
	}

	f.state.OwnInherited()
	plan = f.decide(1000, 500, 1<<30)
	if len(plan.Throttles) != 1 || plan.Throttles[0].To <= 700 {
		t.Errorf("Decide after OwnInherited planned %+v, want a higher quota", plan.Throttles)
	}
}

// TestDecide_InheritedBelowRequest checks that inherited limits are raised to what a resized container requests.
func TestDecide_InheritedBelowRequest(t *testing.T) {
	f := newInheritedFixture()
	plan := f.decide(1000, 1000, 2<<30)
	if len(plan.Throttles) != 1 || plan.Throttles[0].To != 1000 || plan.Throttles[0].Original != 4000 {
		t.Errorf("Decide for a request of 1000m planned %+v, want 1000m with the original 4000m", plan.Throttles)
	}
	if len(plan.MemoryThrottles) != 1 || plan.MemoryThrottles[0].To != 2<<30 || plan.MemoryThrottles[0].Original != 4<<30 {
		t.Errorf("Decide for a request of 2 GiB planned %+v, want 2 GiB with the original 4 GiB", plan.MemoryThrottles)
	}
}

// TestDecide_InheritedThrottledFurther checks that a further step keeps the original limit, and belongs to this process.
func TestDecide_InheritedThrottledFurther(t *testing.T) {
	f := newInheritedFixture()
	plan := f.decide(8000, 0, 0)
	if len(plan.Throttles) != 1 || plan.Throttles[0].To != 350 || plan.Throttles[0].Original != 4000 {
		t.Fatalf("Decide on a busy node planned %+v, want 350m with the original 4000m", plan.Throttles)
	}

	f.state.RecordThrottle(plan.Throttles[0])
	if !f.state.IsThrottled("c") {
		t.Error("IsThrottled after a step of this process = false, want true")
	}
}
