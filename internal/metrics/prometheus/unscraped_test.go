// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestProbeFindsPodsWithoutUsage(t *testing.T) {
	w := newFixture(today.Add(-2*time.Hour), today)
	info := func(pod, node string, when func(time.Time) float64) {
		w.add(when, "__name__", podInfoMetric, "namespace", "shop", "pod", pod, "node", node, "created_by_kind", "StatefulSet", "created_by_name", "db")
	}
	always := constant(1)

	info("measured", "n1", always)
	w.memory("shop", "measured", "app", constant(100))
	info("missing-1", "n2", always)
	info("missing-2", "n3", always)
	info("new", "n2", between(today.Add(-5*time.Minute), today, 1))
	info("ended", "n2", always)
	w.add(always, "__name__", phaseMetric, "namespace", "shop", "pod", "ended", "phase", "Succeeded")
	w.add(always, "__name__", podInfoMetric, "namespace", "shop", "pod", "unscheduled", "created_by_kind", "StatefulSet", "created_by_name", "db")
	// A pod of the same name elsewhere proves nothing.
	w.memory("bank", "missing-1", "app", constant(100))

	r, err := w.source(t, nil).ProbeWithoutHistory(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if want := []string{"n2", "n3"}; r.UnscrapedPods != 2 || !slices.Equal(r.UnscrapedNodes, want) {
		t.Errorf("%d pods without usage on %v, want 2 on %v", r.UnscrapedPods, r.UnscrapedNodes, want)
	}
	if all := strings.Join(r.Warnings, "\n"); !strings.Contains(all, "2 running pods have no usage, on nodes n2, n3") {
		t.Errorf("warnings %q, want one about 2 pods", all)
	}
}
