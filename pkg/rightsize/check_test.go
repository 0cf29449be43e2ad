// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"encoding/json"
	"math"
	"testing"
)

// checkRecommendation verifies the properties of every recommendation.
func checkRecommendation(t *testing.T, r Recommendation) {
	t.Helper()

	if (r.CPU.Status == Ready) != (r.Target.CPURequest != nil) || (r.Memory.Status == Ready) != (r.Target.MemoryRequest != nil) {
		t.Fatalf("Recommend = %+v, want a request exactly for each resource that is Ready", r)
	}

	if v := r.Target.CPURequest; v != nil && *v <= 0 {
		t.Fatalf("CPU request %d, want more than 0", *v)
	}

	if v := r.Target.MemoryRequest; v != nil && *v <= 0 {
		t.Fatalf("memory request %d, want more than 0", *v)
	}

	if l := r.Target.CPULimit; l != nil && (r.Target.CPURequest == nil || *l < *r.Target.CPURequest) {
		t.Fatalf("CPU limit %d, want the request or more: %s", *l, jsonText(r.Target))
	}

	if l := r.Target.MemoryLimit; l != nil && (r.Target.MemoryRequest == nil || *l < *r.Target.MemoryRequest) {
		t.Fatalf("memory limit %d, want the request or more: %s", *l, jsonText(r.Target))
	}

	for _, s := range []Sizing{r.CPU, r.Memory} {
		if s.Message == "" || s.Confidence < 0 || s.Confidence > 1 || math.IsNaN(float64(s.Confidence)) || math.IsNaN(s.Estimate) {
			t.Fatalf("sizing %+v, want a message, a finite estimate and a confidence of 0 to 1", s)
		}

		if s.Status == Ready && len(s.Steps) == 0 {
			t.Fatalf("sizing %+v, want steps that lead to the number", s)
		}

		last := math.NaN()
		for _, step := range s.Steps {
			if math.IsNaN(step.To) || math.IsInf(step.To, 0) || step.Detail == "" || step.String() == "" {
				t.Fatalf("step %+v, want a finite number and a reason", step)
			}

			if step.Code != StepLimit && step.Code != StepLeakExcluded && step.Code != StepEstimate && step.From != last {
				t.Fatalf("step %v begins at %v, want %v, where the one before ended", step.Code, step.From, last)
			}

			if step.Code != StepLimit && step.Code != StepLeakExcluded {
				last = step.To
			}
		}
	}
}

// jsonText formats a value with what its pointers point to, for messages.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}

	return string(text)
}
