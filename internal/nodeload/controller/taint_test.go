// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// TestTaintAtTheMark follows the taint of nodes by load: it comes above the limit, stays until the load is well below
// it, leaves other taints alone, and goes when the load is unknown or the setting is off.
func TestTaintAtTheMark(t *testing.T) {
	w := newCluster(3)
	other := corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	w.nodes[0].Spec.Taints = []corev1.Taint{other}
	spec := nodeload.Spec{
		Metrics: twoMetrics().Metrics[:1],
		Marks:   map[units.Resource]nodeload.WaterMarks{units.CPU: {Low: 0.2, Schedule: 0.5, Evict: 0.9}},
	}
	f := start(t, w, spec)
	f.cfg.TaintAbove = 0.9

	tainted := func() []bool {
		out := make([]bool, len(w.nodes))
		for i := range w.nodes {
			out[i] = slices.ContainsFunc(w.nodes[i].Spec.Taints, ourTaint)
		}

		return out
	}

	round := func() {
		f.Round(t.Context())
		f.Round(t.Context()) // the second one reads what the first wrote
		f.clock.Step(3 * time.Minute)
	}

	for _, step := range []struct {
		loads []float64
		want  []bool
	}{
		{[]float64{46, 44, 10}, []bool{true, false, false}},
		{[]float64{42, 80, 10}, []bool{true, true, false}},
		{[]float64{39, 42, 10}, []bool{false, true, false}},
	} {
		w.percent("cpu_usage_avg_5m", step.loads...)
		round()

		if got := tainted(); !slices.Equal(got, step.want) {
			t.Errorf("at %v %%: tainted %v, want %v", step.loads, got, step.want)
		}
	}

	if !slices.Contains(w.nodes[0].Spec.Taints, other) {
		t.Errorf("taints of n0 %v, want the other taint kept", w.nodes[0].Spec.Taints)
	}

	w.percent("cpu_usage_avg_5m")
	f.clock.Step(10 * time.Minute)
	round()

	if got := tainted(); slices.Contains(got, true) {
		t.Errorf("with unknown load: tainted %v, want none", got)
	}

	w.percent("cpu_usage_avg_5m", 90, 90, 90)
	f.cfg.DryRun = true
	round()

	if got := tainted(); slices.Contains(got, true) {
		t.Errorf("in a dry run: tainted %v, want none", got)
	}

	f.cfg.DryRun = false
	round()

	if got := tainted(); slices.Contains(got, false) {
		t.Errorf("tainted %v, want all", got)
	}

	f.cfg.TaintAbove = 0
	round()

	if got := tainted(); slices.Contains(got, true) {
		t.Errorf("after the setting is off: tainted %v, want none", got)
	}
}
