// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import "testing"

func TestExplain(t *testing.T) {
	limit := 0.05
	evidence := []Evidence{{Name: "p99 of cpu", Value: 0.0123456, Unit: "cores", Limit: &limit}, {Name: "nodes", Value: 3}}
	for want, p := range map[string]Plan{
		"It is idle.": {Description: "It is idle."},
		"It is idle. Evidence: p99 of cpu 0.01235 cores (limit 0.05); nodes 3.":                   {Description: "It is idle.", Evidence: evidence},
		"It is idle. Steps: first; second.":                                                       {Description: "It is idle.", Steps: []string{"first", "second"}},
		"It is idle. Evidence: p99 of cpu 0.01235 cores (limit 0.05); nodes 3. Steps: a: 1 -> 2.": {Description: "It is idle.", Evidence: evidence, Steps: []string{"a: 1 -> 2"}},
	} {
		if got := p.Explain(); got != want {
			t.Errorf("Explain = %q, want %q", got, want)
		}
		if got := WithoutEvidence(p.Explain()); got != p.Description {
			t.Errorf("WithoutEvidence = %q, want %q", got, p.Description)
		}
	}

	if got := WithoutEvidence(""); got != "" {
		t.Errorf("WithoutEvidence of no text = %q, want none", got)
	}
}
