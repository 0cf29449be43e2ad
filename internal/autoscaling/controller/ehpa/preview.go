// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"context"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/pkg/scaling"
)

// MetricReader reads current metrics.
type MetricReader interface {
	// Read returns a metric of the pods that selector matches, as the HPA controller reads it.
	Read(ctx context.Context, namespace, selector string, m *autoscalingv2.MetricSpec, now time.Time) (hpametrics.Value, error)
}

// PreviewCalculator runs the HPA algorithm for autoscalers that may have no HPA, and keeps its history between syncs.
type PreviewCalculator struct {
	Metrics MetricReader

	mu     sync.Mutex
	states map[types.NamespacedName]*previewState
}

// previewState is kept for one autoscaler. Its history outlives a change of the spec, as in the HPA controller.
type previewState struct {
	generation int64
	computedAt time.Time
	history    scaling.History
	last       decision
}

// decision is the number of replicas that an HPA sets, with the proposals behind it.
type decision struct {
	// replicas is nil until there is a decision.
	replicas       *int32
	winner, reason string
	proposals      []autoscalingv1alpha1.ReplicaProposal
}

// Forget drops the state of an autoscaler.
func (s *PreviewCalculator) Forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.states, name)
}

// Compute returns the decision of an HPA for a plan with a computed preview, and nil for any other. Within one sync period it returns
// the same decision.
func (s *PreviewCalculator) Compute(ctx context.Context, o observation, p plan) *decision {
	name := client.ObjectKeyFromObject(o.ehpa)
	if !p.computePreview {
		s.Forget(name)
		return nil
	}

	s.mu.Lock()
	state := s.states[name]
	if state == nil {
		state = &previewState{}
		if s.states == nil {
			s.states = map[types.NamespacedName]*previewState{}
		}

		s.states[name] = state
	}

	s.mu.Unlock()
	// The workqueue never runs two reconciles of one autoscaler at once.
	if state.computedAt.IsZero() || state.generation != o.ehpa.Generation || o.now.Sub(state.computedAt) >= previewInterval {
		state.last = s.sync(ctx, &state.history, o, p)
		state.computedAt = o.now
		state.generation = o.ehpa.Generation
	}

	out := state.last
	return &out
}

// sync runs the HPA algorithm once.
func (s *PreviewCalculator) sync(ctx context.Context, h *scaling.History, o observation, p plan) decision {
	metrics := scalingmetric.MetricSpecs(o.ehpa)
	names := scalingmetric.Identifiers(metrics)
	behavior := o.ehpa.Spec.Behavior
	var input []scaling.Proposal
	var out decision

	add := func(entry proposal, replicas int32, err error) {
		out.proposals = append(out.proposals, entry.status(replicas, err))
		input = append(input, scaling.Proposal{
			Metric:   entry.name,
			Replicas: replicas,
			Err:      err,
			Reason:   entry.name + " is " + entry.current + ", the target " + entry.target,
		})
	}

	for i := range metrics {
		entry := proposal{name: names[i]}
		var replicas int32
		v, err := s.Metrics.Read(ctx, o.ehpa.Namespace, o.target.Selector, &metrics[i], o.now)
		if err == nil {
			replicas, entry.current, entry.target, err = replicasFor(&metrics[i], v, o.target, scalingTolerance(behavior))
		}

		add(entry, replicas, err)
	}

	for _, c := range p.forecasts.candidates {
		entry := proposal{name: proposalPrediction + c.identifier}
		if c.err != nil {
			out.proposals = append(out.proposals, entry.status(0, c.err))
			continue
		}

		entry.current = formatNumber(c.forecast.Value)
		entry.target = c.perPod.String()
		entry.message = c.forecast.Reason
		value := scalingmetric.NewQuantity(c.forecast.Value)
		replicas, err := scaling.ReplicasForTotal(value.MilliValue(), c.perPod.MilliValue(), o.target.CurrentReplicas, scalingTolerance(behavior))
		add(entry, replicas, err)
	}

	out.proposals = append(out.proposals, cronProposals(p.crons.floor)...)
	lowest := min(max(minReplicas(o.ehpa), p.crons.floor.Replicas), o.ehpa.Spec.MaxReplicas)
	bounds := scaling.Bounds{Min: lowest, Max: o.ehpa.Spec.MaxReplicas}
	d, err := scaling.Decide(h, scalingBehavior(behavior), bounds, o.now, o.target.Replicas, input)
	out.replicas = &d.Replicas

	out.winner = d.Winner
	out.reason = d.Reason
	if err != nil {
		out.reason = condition.Message("replicas stay: " + err.Error())
	}

	return out
}

// proposal is a metric with its current value and target as text.
type proposal struct {
	name, current, target, message string
}

// status returns the proposal for the status: with replicas, or with the reason why there are none.
func (p proposal) status(replicas int32, err error) autoscalingv1alpha1.ReplicaProposal {
	out := autoscalingv1alpha1.ReplicaProposal{
		Name:    p.name,
		Current: p.current,
		Target:  p.target,
		Message: condition.Message(p.message),
	}

	if err != nil {
		out.Message = condition.Message(err.Error())
	} else {
		out.Replicas = &replicas
	}

	return out
}

// scalingBehavior converts the behavior of an HPA. Unset fields have the defaults of the HPA controller.
func scalingBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) scaling.Behavior {
	const stabilization = 5 * time.Minute
	full := defaultedBehavior(b)
	if full == nil {
		return scaling.DefaultBehavior(stabilization)
	}

	return scaling.Behavior{Up: scalingRules(full.ScaleUp, 0), Down: scalingRules(full.ScaleDown, stabilization)}
}

func scalingRules(r *autoscalingv2.HPAScalingRules, stabilization time.Duration) scaling.DirectionRules {
	out := scaling.DirectionRules{StabilizationWindow: stabilization}
	if r.StabilizationWindowSeconds != nil {
		out.StabilizationWindow = time.Duration(*r.StabilizationWindowSeconds) * time.Second
	}

	switch *r.SelectPolicy {
	case autoscalingv2.MinChangePolicySelect:
		out.Select = scaling.SelectMin
	case autoscalingv2.DisabledPolicySelect:
		out.Select = scaling.SelectDisabled
	}

	for _, p := range r.Policies {
		policy := scaling.RatePolicy{Pods: p.Value, Period: time.Duration(p.PeriodSeconds) * time.Second}
		if p.Type == autoscalingv2.PercentScalingPolicy {
			policy.Pods = 0
			policy.Percent = p.Value
		}

		out.Policies = append(out.Policies, policy)
	}

	return out
}
