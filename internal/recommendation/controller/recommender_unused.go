// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/unused"
)

// unusedRecommender finds workloads that run and that nobody uses.
func unusedRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypeUnused),
		supports: supportsScalable,
		configure: func(config map[string]string) (evaluator, error) {
			s, err := unused.ParseSettings(config)
			return &unusedEvaluator{settings: s}, err
		},
	}
}

type unusedEvaluator struct {
	settings            unused.Settings
	cpu, received, sent map[workloadKey]podTotals
}

func (j *unusedEvaluator) gather(ctx context.Context, w *passData, targets []workload.Workload) error {
	if _, err := w.pods(ctx); err != nil {
		return err
	}
	if _, err := w.constraints(ctx); err != nil {
		return err
	}
	w.prices(ctx)
	return w.readPodFigures(ctx, targets, j.settings.Hours,
		thresholdFigure{j.settings.CPU, metrics.PodCPU, &j.cpu},
		thresholdFigure{j.settings.Receive, metrics.PodReceived, &j.received},
		thresholdFigure{j.settings.Transmit, metrics.PodSent, &j.sent})
}

func (j *unusedEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	key := workloadKeyOf(target.Ref)
	in := unused.Input{
		Replicas: int(target.Replicas), Scales: true,
		CPU: j.cpu[key].mean(), Receive: j.received[key].mean(), Transmit: j.sent[key].mean(),
	}
	for _, p := range w.podsOfWorkload(target.Ref) {
		if p.status.ready {
			in.Ready++
		}
		if p.status.hostNetwork {
			in.HostPods++
		}
	}
	out := decision{plan: unused.Decide(in, j.settings)}
	if out.plan.State != recommend.Ready {
		return out, nil
	}
	if all := w.read.constraints.Autoscalers(target.Ref); len(all) > 0 {
		out.plan.Description += " HorizontalPodAutoscaler " + all[0].Name + " does not act on a workload that is scaled to zero."
	}
	out.notApplicable = notApplicableProposal("scaling to zero takes a workload away: somebody has to agree to it")
	out.savings, out.pricesUnknown = w.read.prices.savingsOfScaleDown(target), w.read.prices == nil
	err := writeReplicas(&out, target.Replicas, 0)
	return out, err
}

// notApplicableProposal holds what nothing but a person may carry out.
func notApplicableProposal(why string) *condition {
	return &condition{conditionType: analysisv1alpha1.ConditionApplicable, reason: reasonProposalOnly, message: "Crane does not apply this: " + why + "."}
}
