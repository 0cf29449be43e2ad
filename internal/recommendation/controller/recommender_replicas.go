// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/replicas"
)

// replicasEvaluator recommends the number of pods of a workload.
type replicasEvaluator struct{ settings replicas.Settings }

func (e *replicasEvaluator) usageWindow() time.Duration { return e.settings.Window }
func (e *replicasEvaluator) needsTotals() bool          { return true }

func (e *replicasEvaluator) gather(ctx context.Context, d *runData, _ []workload.Workload) error {
	_, err := d.usage(ctx)
	return err
}

func (e *replicasEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	plan := replicas.Decide(d.replicasInput(target), e.settings)
	out := decision{plan: plan.Plan}
	if plan.State != recommend.Ready {
		return out, nil
	}

	// An autoscaler overrides a number that is set beside it.
	if all := d.read.constraints.Autoscalers(target.Ref); len(all) > 0 {
		out.notApplicable = notApplicable(reasonAutoscaled, fmt.Sprintf("HorizontalPodAutoscaler %s sets the number of pods.", all[0].Name))
	}

	return out.withReplicas(target.Replicas, plan.Replicas)
}

// replicasInput returns the input of the Replicas and HPA recommenders for a workload.
func (d *runData) replicasInput(target workload.Workload) replicas.Input {
	requests, unrequested := target.PodRequests()
	in := replicas.Input{
		Replicas:      target.Replicas,
		Available:     -1,
		CPURequest:    requests.CPU,
		MemoryRequest: requests.Memory,
		Unrequested:   unrequested,
		Now:           d.historyEnd,
	}

	if target.Available != nil {
		in.Available = *target.Available
	}

	in.CPU, in.Memory = d.read.usage.Totals(target.Ref)
	return in
}

// withReplicas returns the decision with a number of pods in gocrane's formats.
func (d decision) withReplicas(current, recommended int32) (decision, error) {
	patch := func(n int32) string { return fmt.Sprintf(`{"spec":{"replicas":%d}}`, n) }
	d.current = patch(current)
	d.recommended = patch(recommended)

	raw, err := yaml.Marshal(analysisv1alpha1.ProposedRecommendation{
		ReplicasRecommendation: &analysisv1alpha1.ReplicasRecommendation{Replicas: &recommended},
	})
	if err != nil {
		return d, fmt.Errorf("encoding the recommended value: %w", err)
	}

	d.value = string(raw)
	return d, nil
}
