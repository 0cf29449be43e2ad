// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"math"
	"testing"
)

// checkRecommendation verifies the properties of every recommendation.
func checkRecommendation(t *testing.T, r Recommendation) {
	t.Helper()

	if (r.CPU.Status == Ready) != (r.Target.CPURequest != nil) || (r.Memory.Status == Ready) != (r.Target.MemoryRequest != nil) {
		t.Fatalf("a number without readiness, or the other way round: %+v", r)
	}

	if v := r.Target.CPURequest; v != nil && *v <= 0 {
		t.Fatalf("CPU request %d", *v)
	}

	if v := r.Target.MemoryRequest; v != nil && *v <= 0 {
		t.Fatalf("memory request %d", *v)
	}

	if l := r.Target.CPULimit; l != nil && (r.Target.CPURequest == nil || *l < *r.Target.CPURequest) {
		t.Fatalf("CPU limit %d below the request", *l)
	}

	if l := r.Target.MemoryLimit; l != nil && (r.Target.MemoryRequest == nil || *l < *r.Target.MemoryRequest) {
		t.Fatalf("memory limit %d below the request", *l)
	}

	for _, s := range []Sizing{r.CPU, r.Memory} {
		if s.Message == "" || s.Confidence < 0 || s.Confidence > 1 || math.IsNaN(float64(s.Confidence)) || math.IsNaN(s.Estimate) {
			t.Fatalf("%+v", s)
		}

		if s.Status == Ready && len(s.Steps) == 0 {
			t.Fatalf("a number without a reason: %+v", s)
		}

		last := math.NaN()
		for _, step := range s.Steps {
			if math.IsNaN(step.To) || math.IsInf(step.To, 0) || step.Detail == "" || step.String() == "" {
				t.Fatalf("step %+v", step)
			}

			if step.Code != StepLimit && step.Code != StepLeakExcluded && step.Code != StepEstimate && step.From != last {
				t.Fatalf("step %v begins at %v, the one before ended at %v", step.Code, step.From, last)
			}

			if step.Code != StepLimit && step.Code != StepLeakExcluded {
				last = step.To
			}
		}
	}
}
