// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/unused"
)

// unusedEvaluator finds workloads that run without being used.
type unusedEvaluator struct {
	settings            unused.Settings
	cpu, received, sent map[workloadKey]podTotals
}

func (e *unusedEvaluator) gather(ctx context.Context, d *runData, targets []workload.Workload) error {
	if _, err := d.pods(ctx); err != nil {
		return err
	}

	if _, err := d.constraints(ctx); err != nil {
		return err
	}

	d.prices(ctx)
	return d.readPodFigures(ctx, targets, e.settings.Hours,
		thresholdFigure{e.settings.CPU, metrics.PodCPU, &e.cpu},
		thresholdFigure{e.settings.Receive, metrics.PodReceived, &e.received},
		thresholdFigure{e.settings.Transmit, metrics.PodSent, &e.sent})
}

func (e *unusedEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	key := workloadKeyOf(target.Ref)
	in := unused.Input{
		Replicas: int(target.Replicas),
		Scales:   true,
		CPU:      e.cpu[key].mean(),
		Receive:  e.received[key].mean(),
		Transmit: e.sent[key].mean(),
	}

	for _, p := range d.podsOfWorkload(target.Ref) {
		if p.status.ready {
			in.Ready++
		}
		if p.status.hostNetwork {
			in.HostPods++
		}
	}

	out := decision{plan: unused.Decide(in, e.settings)}
	if out.plan.State != recommend.Ready {
		return out, nil
	}

	if all := d.read.constraints.Autoscalers(target.Ref); len(all) > 0 {
		out.plan.Description += " HorizontalPodAutoscaler " + all[0].Name + " does not act on a workload that is scaled to zero."
	}

	out.notApplicable = proposalOnly("scaling to zero removes a workload from service and needs an approval")
	out.savings = d.read.prices.savingsOfScaleDown(target)
	out.pricesUnknown = d.read.prices == nil

	return out.withReplicas(target.Replicas, 0)
}

// proposalOnly returns the condition of a recommendation that only a person may carry out.
func proposalOnly(why string) *condition {
	return notApplicable(reasonProposalOnly, "Crane does not apply this: "+why+".")
}
