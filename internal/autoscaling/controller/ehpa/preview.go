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
	"crane.io/crane/pkg/scaling"
)

// PreviewCalculator runs the algorithm of the HPA for autoscalers that may have none, and keeps what it remembers between rounds.
type PreviewCalculator struct {
	// Metrics reads the metrics APIs as the HPA controller does.
	Metrics MetricReader

	mu     sync.Mutex
	states map[types.NamespacedName]*previewState
}

// MetricReader reads what metrics are now.
type MetricReader interface {
	// Read returns a metric of the pods that a selector selects, as the HPA controller would see it.
	Read(ctx context.Context, namespace, selector string, m *autoscalingv2.MetricSpec, now time.Time) (MetricValue, error)
}

// MetricValue is a metric as it is now.
type MetricValue struct {
	// Pods are the samples of a metric per pod.
	Pods []scaling.Pod
	// Sum is the value of a metric of an object or from outside.
	Sum float64
	// Ready is how many pods are ready.
	Ready int32
}

// previewState is what is kept of one autoscaler; history is dropped when the spec changes.
type previewState struct {
	generation int64
	computedAt time.Time
	history    scaling.History
	last       preview
}

// preview is what an HPA would do.
type preview struct {
	replicas  int32
	winner    string
	reason    string
	proposals []autoscalingv1alpha1.ReplicaProposal
}

// fill writes the preview into a status.
func (p *preview) fill(out *autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerStatus) {
	expected := p.replicas
	out.ExpectReplicas, out.Winner, out.Why, out.Proposals = &expected, p.winner, p.reason, p.proposals
}

// Forget drops what is remembered of an autoscaler.
func (s *PreviewCalculator) Forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.states, name)
}

// Compute returns what an HPA would do. Within a sync period of the last time it returns the same.
func (s *PreviewCalculator) Compute(ctx context.Context, o *observation, p plan) *preview {
	name := client.ObjectKeyFromObject(o.ehpa)
	s.mu.Lock()
	m := s.states[name]
	if m == nil || m.generation != o.ehpa.Generation {
		m = &previewState{generation: o.ehpa.Generation}
		if s.states == nil {
			s.states = map[types.NamespacedName]*previewState{}
		}
		s.states[name] = m
	}
	s.mu.Unlock()
	// One worker looks at an autoscaler at a time: the queue sees to that.
	if m.computedAt.IsZero() || o.now.Sub(m.computedAt) >= previewInterval {
		m.last, m.computedAt = s.computeOnce(ctx, &m.history, o, &p), o.now
	}
	out := m.last
	return &out
}

// computeOnce is one sync of the HPA.
func (s *PreviewCalculator) computeOnce(ctx context.Context, h *scaling.History, o *observation, p *plan) preview {
	metrics := metricSpecs(o.ehpa)
	names := resourceIdentifiers(metrics)
	tolerance := scalingTolerance(o.ehpa.Spec.Behavior)
	var asked []scaling.Proposal
	var out preview
	for i := range metrics {
		v, err := s.Metrics.Read(ctx, o.ehpa.Namespace, o.target.Selector, &metrics[i], o.now)
		one := scaling.Proposal{Metric: names[i], Err: err}
		said := autoscalingv1alpha1.ReplicaProposal{Name: names[i]}
		if err == nil {
			one.Replicas, said.Current, said.Target, one.Err = replicasFor(&metrics[i], v, o.target, tolerance)
		}
		out.add(&asked, one, said)
	}
	for i := range p.candidates {
		c := &p.candidates[i]
		said := autoscalingv1alpha1.ReplicaProposal{Name: proposalPrediction + c.identifier}
		if c.err != nil {
			said.Message = boundedMessage(c.err.Error())
			out.proposals = append(out.proposals, said)
			continue
		}
		one := scaling.Proposal{Metric: said.Name}
		one.Replicas, one.Err = scaling.ReplicasForTotal(c.forecast.Value, c.perPod.AsApproximateFloat64(), o.target.Replicas, tolerance)
		said.Current, said.Target, said.Message = formatNumber(c.forecast.Value), c.perPod.String(), boundedMessage(c.forecast.Reason)
		out.add(&asked, one, said)
	}
	out.proposals = append(out.proposals, cronProposals(p)...)
	least := min(max(minReplicas(o.ehpa), p.floor.Replicas), o.ehpa.Spec.MaxReplicas)
	bounds := scaling.Bounds{Min: least, Max: o.ehpa.Spec.MaxReplicas}
	d, err := scaling.Decide(h, scalingBehavior(o.ehpa.Spec.Behavior), bounds, o.now, o.target.Replicas, asked)
	out.replicas, out.winner, out.reason = d.Replicas, d.Winner, d.Reason
	if err != nil {
		out.reason = boundedMessage("replicas stay: " + err.Error())
	}
	return out
}

// add books what one metric asks for.
func (p *preview) add(asked *[]scaling.Proposal, one scaling.Proposal, said autoscalingv1alpha1.ReplicaProposal) {
	if one.Err != nil {
		said.Message = boundedMessage(one.Err.Error())
	} else {
		n := one.Replicas
		said.Replicas = &n
		one.Reason = said.Name + " is " + said.Current + ", the target " + said.Target
	}
	*asked = append(*asked, one)
	p.proposals = append(p.proposals, said)
}

// scalingBehavior translates the behavior of an HPA; what is not said is what the controller does by default.
func scalingBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) scaling.Behavior {
	const stabilisation = 5 * time.Minute
	out := scaling.DefaultBehavior(stabilisation)
	full := defaultedBehavior(b)
	if full == nil {
		return out
	}
	out.Up = scalingRules(full.ScaleUp, 0)
	out.Down = scalingRules(full.ScaleDown, stabilisation)
	return out
}

func scalingRules(r *autoscalingv2.HPAScalingRules, stabilisation time.Duration) scaling.DirectionRules {
	out := scaling.DirectionRules{StabilizationWindow: stabilisation}
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
		one := scaling.RatePolicy{Pods: p.Value, Period: time.Duration(p.PeriodSeconds) * time.Second}
		if p.Type == autoscalingv2.PercentScalingPolicy {
			one.Pods, one.Percent = 0, p.Value
		}
		out.Policies = append(out.Policies, one)
	}
	return out
}
