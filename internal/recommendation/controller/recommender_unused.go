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
		name:  string(analysisv1alpha1.AnalysisTypeUnused),
		takes: takesScalable,
		configure: func(config map[string]string) (job, error) {
			s, err := unused.ParseSettings(config)
			return &unusedJob{settings: s}, err
		},
	}
}

type unusedJob struct {
	settings            unused.Settings
	cpu, received, sent map[owner]podHours
}

func (j *unusedJob) gather(ctx context.Context, w *world, targets []workload.Workload) error {
	if _, err := w.pods(ctx); err != nil {
		return err
	}
	if _, err := w.constraints(ctx); err != nil {
		return err
	}
	w.prices(ctx)
	return w.readPods(ctx, targets, j.settings.Hours,
		podFigure{j.settings.CPU, metrics.PodCPU, &j.cpu},
		podFigure{j.settings.Receive, metrics.PodReceived, &j.received},
		podFigure{j.settings.Transmit, metrics.PodSent, &j.sent})
}

func (j *unusedJob) decide(w *world, target workload.Workload) (decision, error) {
	key := ownerOf(target.Ref)
	in := unused.Input{
		Replicas: int(target.Replicas), Scales: true,
		CPU: j.cpu[key].mean(), Receive: j.received[key].mean(), Transmit: j.sent[key].mean(),
	}
	for _, p := range w.podsOf(target.Ref) {
		if p.uses.ready {
			in.Ready++
		}
		if p.uses.hostNetwork {
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
	out.held = proposalOnly("scaling to zero takes a workload away: somebody has to agree to it")
	out.savings, out.unpriced = w.read.prices.savingsOfNone(target), w.read.prices == nil
	err := writeReplicas(&out, target.Replicas, 0)
	return out, err
}

// proposalOnly holds what nothing but a person may carry out.
func proposalOnly(why string) *state {
	return &state{kind: analysisv1alpha1.ConditionApplicable, reason: reasonProposalOnly, message: "Crane does not apply this: " + why + "."}
}
