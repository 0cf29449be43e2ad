// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"strings"
	"testing"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// TestScalePoint checks that the product of request and target is preserved within half a percent of the request, for
// the whole pod and for one container, that the text names the autoscaler, and that requests stay where Crane does not own it.
func TestScalePoint(t *testing.T) {
	cpu := units.MilliCPU(2000)
	memory := units.Bytes(1 << 30)
	week := used(10, 0.5, 100<<20)

	in := Input{
		Policy: policy(t), Now: now,
		Containers: []Container{
			{Name: "a", Profile: week, Current: rightsize.Resources{CPURequest: &cpu, MemoryRequest: &memory}, HPA: &rightsize.HPA{CPUUtilization: 0.2}},
			{Name: "b", Profile: week, Current: rightsize.Resources{CPURequest: &cpu, MemoryRequest: &memory}, HPA: &rightsize.HPA{CPUUtilization: 0.2}},
		},
		Autoscaler: &Autoscaler{Name: "web", Owned: true, Targets: []Target{{Percent: 20}, {Container: "b", Percent: 20}, {Memory: true, Percent: 100}}},
	}

	plan := Decide(in)
	if plan.State != recommend.Ready || plan.Action != recommend.Patch || len(plan.ScalePoint) == 0 {
		t.Fatalf("Decide = %+v, want Patch with new targets", plan)
	}

	for _, m := range plan.ScalePoint {
		now, after := m.requests(plan.Containers)
		if before, then := float64(m.Percent)*now, float64(m.To)*after; math.Abs(before-then) > after/2+1e-6 {
			t.Errorf("%+v moves the scale point from %g to %g, want at most half a percent of the request", m, before, then)
		}
	}

	if got := *plan.Containers[0].Target.CPURequest; got >= cpu {
		t.Errorf("CPU request %v, want less than %v", got, cpu)
	}
	if !strings.Contains(plan.Description, "autoscaler web acts on the utilization") || !strings.Contains(plan.Description, "cpu of b 20 % ->") {
		t.Errorf("description %q, want the autoscaler and its new targets", plan.Description)
	}

	in.Autoscaler.Owned = false
	if foreign := Decide(in); len(foreign.ScalePoint) > 0 || *foreign.Containers[0].Target.CPURequest != cpu || *foreign.Containers[0].Target.MemoryRequest >= memory ||
		!strings.Contains(foreign.Description, "would need a target of") {
		t.Errorf("Decide beside an autoscaler of others: %+v, %s, want CPU held and memory lowered", foreign.ScalePoint, foreign.Description)
	}

	in.Autoscaler.Owned = true
	// Without a request today an autoscaler on it does not act, and there is no point to keep.
	in.Containers[0].Current.CPURequest = nil
	in.Containers[1].Current.CPURequest = nil
	for _, m := range Decide(in).ScalePoint {
		if !m.Memory {
			t.Errorf("target change %+v, want none of CPU without a request", m)
		}
	}

	in.Autoscaler.Targets = nil
	if plan := Decide(in); len(plan.ScalePoint) > 0 || strings.Contains(plan.Description, "autoscaler web") {
		t.Errorf("target changes %+v, want none without targets", plan.ScalePoint)
	}
}
