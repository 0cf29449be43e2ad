// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/replicas"
)

// replicasRecommender says how many pods workloads should have.
func replicasRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypeReplicas),
		supports: supportsScalable,
		configure: func(config map[string]string) (evaluator, error) {
			s, err := replicas.ParseSettings(config)
			return &replicasEvaluator{settings: s}, err
		},
	}
}

type replicasEvaluator struct{ settings replicas.Settings }

func (j *replicasEvaluator) usageWindow() time.Duration { return j.settings.Window }
func (j *replicasEvaluator) needsTotals() bool          { return true }

func (j *replicasEvaluator) gather(ctx context.Context, w *passData, _ []workload.Workload) error {
	_, err := w.usage(ctx)
	return err
}

func (j *replicasEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	plan := replicas.Decide(w.replicasInput(target), j.settings)
	out := decision{plan: plan.Plan}
	if plan.State != recommend.Ready {
		return out, nil
	}
	// An autoscaler undoes what is set beside it, and is the one to be told.
	if all := w.read.constraints.Autoscalers(target.Ref); len(all) > 0 {
		out.notApplicable = &condition{
			conditionType: analysisv1alpha1.ConditionApplicable, reason: reasonAutoscaled,
			message: fmt.Sprintf("HorizontalPodAutoscaler %s decides about the number of pods.", all[0].Name),
		}
	}
	err := writeReplicas(&out, target.Replicas, plan.Replicas)
	return out, err
}

// replicasInput is what the recommender needs to know of a workload.
func (w *passData) replicasInput(target workload.Workload) replicas.Input {
	requests, unrequested := target.PodRequests()
	in := replicas.Input{
		Replicas: target.Replicas, Available: -1, CPURequest: requests.CPU, MemoryRequest: requests.Memory,
		Unrequested: unrequested, Now: w.historyEnd,
	}
	if target.Available != nil {
		in.Available = *target.Available
	}
	in.CPU, in.Memory = w.read.usage.Totals(target.Ref)
	return in
}

// writeReplicas writes the number in gocrane's formats.
func writeReplicas(out *decision, now, wanted int32) error {
	patch := func(n int32) (string, error) {
		raw, err := json.Marshal(map[string]any{"spec": map[string]int32{"replicas": n}})
		if err != nil {
			return "", fmt.Errorf("encoding the patch: %w", err)
		}
		return string(raw), nil
	}
	var err error
	if out.current, err = patch(now); err != nil {
		return err
	}
	if out.recommended, err = patch(wanted); err != nil {
		return err
	}
	raw, err := yaml.Marshal(analysisv1alpha1.ProposedRecommendation{
		ReplicasRecommendation: &analysisv1alpha1.ReplicasRecommendation{Replicas: &wanted},
	})
	if err != nil {
		return fmt.Errorf("encoding the recommended value: %w", err)
	}
	out.value = string(raw)
	return nil
}
