// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"testing"
	"time"
)

func TestConstraintsAreThoseOfTheLargestNodes(t *testing.T) {
	w := newFixture(today.Add(-10*time.Minute), today)
	w.cpu("shop", "any-pod-1", "app", constant(0.1))

	none, err := w.source(t, nil).Constraints(t.Context())
	if err != nil || none.MaxCPU != 0 || none.MaxMemory != 0 {
		t.Errorf("Constraints without the metric = %+v, %v, want zeros", none, err)
	}

	w = newFixture(today.Add(-10*time.Minute), today)
	for node, has := range map[string][2]float64{"wide": {15.5, 8 << 30}, "deep": {4, 64 << 30}} {
		w.add(constant(has[0]), "__name__", allocatableMetric, "node", node, "resource", "cpu", "unit", "core")
		w.add(constant(has[1]), "__name__", allocatableMetric, "node", node, "resource", "memory", "unit", "byte")
		w.add(constant(110), "__name__", allocatableMetric, "node", node, "resource", "pods", "unit", "integer")
	}

	got, err := w.source(t, nil).Constraints(t.Context())
	if err != nil || got.MaxCPU != 15500 || got.MaxMemory != 64<<30 {
		t.Errorf("Constraints = %+v, %v, want 15.5 cores and 64 GiB", got, err)
	}
}
