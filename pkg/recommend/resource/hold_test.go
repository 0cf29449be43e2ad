// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"
	"testing"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// TestDecide_WithAutoscaler checks that a request that is the base of an autoscaler's utilization is unchanged with
// its limit, and that the other request changes.
func TestDecide_WithAutoscaler(t *testing.T) {
	cpu := units.MilliCPU(2000)
	cpuLimit := units.MilliCPU(4000)
	memory := units.Bytes(1 << 30)
	current := rightsize.Resources{CPURequest: &cpu, CPULimit: &cpuLimit, MemoryRequest: &memory}
	week := used(10, 0.5, 100<<20)
	free := Decide(Input{Policy: policy(t), Now: now, Containers: []Container{{Name: "a", Profile: week, Current: current}}}).Containers[0]
	decide := func(current rightsize.Resources, hpa *rightsize.HPA) Plan {
		return Decide(Input{Policy: policy(t), Now: now, Containers: []Container{{Name: "a", Profile: week, Current: current, HPA: hpa}}})
	}

	plan := decide(current, &rightsize.HPA{CPUUtilization: 0.2})
	r := plan.Containers[0]
	if *r.Target.CPURequest != cpu || *r.Target.CPULimit != cpuLimit || r.HPA != nil {
		t.Errorf("cpu %v, limit %v, autoscaler %+v, want %v, %v and none", *r.Target.CPURequest, *r.Target.CPULimit, r.HPA, cpu, cpuLimit)
	}
	if *r.Target.MemoryRequest != *free.Target.MemoryRequest || plan.Action != recommend.Patch {
		t.Errorf("memory %v, action %s, want %v and Patch", *r.Target.MemoryRequest, plan.Action, *free.Target.MemoryRequest)
	}

	last := r.CPU.Steps[len(r.CPU.Steps)-1]
	if last.Code != rightsize.StepHPA || last.To != 2 || !strings.Contains(plan.Description, "cpu stays 2 (an autoscaler acts at 20 % of the request") {
		t.Errorf("last step %v, description %q, want a step of the autoscaler to 2 cores", last, plan.Description)
	}
	if flags := r.CPU.Flags; len(flags) == 0 || flags[len(flags)-1].Code != rightsize.FlagAutoscaled {
		t.Errorf("flags %v, want %s last", flags, rightsize.FlagAutoscaled)
	}

	both := decide(current, &rightsize.HPA{CPUUtilization: 0.2, MemoryUtilization: 0.6})
	if both.Action != recommend.NoAction {
		t.Errorf("Decide with both requests held = %s: %s, want no action", both.Action, both.Description)
	}
	// Without a request a utilization has no meaning and no request is kept.
	if r := decide(rightsize.Resources{}, &rightsize.HPA{CPUUtilization: 0.2}).Containers[0]; *r.Target.CPURequest != *free.Target.CPURequest {
		t.Errorf("cpu %v, want %v", *r.Target.CPURequest, *free.Target.CPURequest)
	}

	// A request that hardly moves leaves the target the same whole percent.
	near := *free.Target.CPURequest + 1
	if r := decide(rightsize.Resources{CPURequest: &near}, &rightsize.HPA{CPUUtilization: 0.5}).Containers[0]; *r.Target.CPURequest != *free.Target.CPURequest {
		t.Errorf("cpu %v, want %v: %s", *r.Target.CPURequest, *free.Target.CPURequest, r.CPU.Message)
	}
}

// TestDecide_LargestNode checks that no request exceeds the largest node, with the reason in steps and flags.
func TestDecide_LargestNode(t *testing.T) {
	week := used(10, 0.5, 100<<20)
	plan := Decide(Input{Policy: policy(t), Now: now, MaxCPU: 400, MaxMemory: 64 << 20, Containers: []Container{{Name: "a", Profile: week}}})
	r := plan.Containers[0]

	if !strings.Contains(plan.Description, "the largest node has 400m for pods") {
		t.Errorf("description %q, want the size of the largest node", plan.Description)
	}
	if *r.Target.CPURequest != 400 || *r.Target.MemoryRequest != 64<<20 {
		t.Errorf("requests %v, %v, want those of the largest node", *r.Target.CPURequest, *r.Target.MemoryRequest)
	}

	for _, s := range []rightsize.Sizing{r.CPU, r.Memory} {
		if len(s.Flags) == 0 || s.Flags[len(s.Flags)-1].Code != rightsize.FlagTooLarge {
			t.Errorf("flags %v, want %s last", s.Flags, rightsize.FlagTooLarge)
		}
	}
}

// TestDecide_RequestOfALimit checks that a limit without a request, which is the request of pods, is held and compared like one.
func TestDecide_RequestOfALimit(t *testing.T) {
	cpu := units.MilliCPU(2000)
	memory := units.Bytes(1 << 30)
	decide := func(current rightsize.Resources) Plan {
		return Decide(Input{
			Policy: policy(t), Now: now, Autoscaler: &Autoscaler{Name: "web", Targets: []Target{{Percent: 60}}},
			Containers: []Container{{Name: "a", Profile: used(10, 0.3, 100<<20), Current: current, HPA: &rightsize.HPA{CPUUtilization: 0.6}}},
		})
	}

	want := decide(rightsize.Resources{CPURequest: &cpu, CPULimit: &cpu, MemoryRequest: &memory, MemoryLimit: &memory})
	got := decide(rightsize.Resources{CPULimit: &cpu, MemoryLimit: &memory})
	if got.Description != want.Description || !strings.Contains(got.Description, "cpu stays 2 (an autoscaler acts at 60 %") {
		t.Errorf("Decide without requests beside limits:\n%s, want as with them:\n%s", got.Description, want.Description)
	}

	// A request of 0 is one that the owner has set.
	none := units.MilliCPU(0)
	if got := decide(rightsize.Resources{CPURequest: &none, CPULimit: &cpu}).Containers[0]; *got.Current.CPURequest != 0 || *got.Target.CPURequest >= 2000 {
		t.Errorf("Decide with a request of 0: request %d -> %d, want 0 and less than the limit", *got.Current.CPURequest, *got.Target.CPURequest)
	}
}
