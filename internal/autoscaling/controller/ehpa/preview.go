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

// Previews runs the algorithm of the HPA for autoscalers that may have none, and keeps what it remembers between rounds.
type Previews struct {
	// Values reads the metrics APIs as the HPA controller does.
	Values Values

	mu     sync.Mutex
	byName map[types.NamespacedName]*memory
}

// Values reads what metrics are now.
type Values interface {
	// Read returns a metric of the pods that a selector selects, as the HPA controller would see it.
	Read(ctx context.Context, namespace, selector string, m *autoscalingv2.MetricSpec, now time.Time) (Value, error)
}

// Value is a metric as it is now.
type Value struct {
	// Pods are the samples of a metric per pod.
	Pods []scaling.Pod
	// Sum is the value of a metric of an object or from outside.
	Sum float64
	// Ready is how many pods are ready.
	Ready int32
}

// memory is what is kept of one autoscaler; history is dropped when the spec changes.
type memory struct {
	generation int64
	at         time.Time
	history    scaling.History
	last       preview
}

// preview is what an HPA would do.
type preview struct {
	expected  int32
	winner    string
	why       string
	proposals []autoscalingv1alpha1.ReplicaProposal
}

// fill writes the preview into a status.
func (p *preview) fill(out *autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerStatus) {
	expected := p.expected
	out.ExpectReplicas, out.Winner, out.Why, out.Proposals = &expected, p.winner, p.why, p.proposals
}

// Forget drops what is remembered of an autoscaler.
func (s *Previews) Forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, name)
}

// Decide returns what an HPA would do. Within a sync period of the last time it returns the same.
func (s *Previews) Decide(ctx context.Context, o *observation, p plan) *preview {
	name := client.ObjectKeyFromObject(o.ehpa)
	s.mu.Lock()
	m := s.byName[name]
	if m == nil || m.generation != o.ehpa.Generation {
		m = &memory{generation: o.ehpa.Generation}
		if s.byName == nil {
			s.byName = map[types.NamespacedName]*memory{}
		}
		s.byName[name] = m
	}
	s.mu.Unlock()
	// One worker looks at an autoscaler at a time: the queue sees to that.
	if m.at.IsZero() || o.now.Sub(m.at) >= previewEvery {
		m.last, m.at = s.round(ctx, &m.history, o, &p), o.now
	}
	out := m.last
	return &out
}

// round is one sync of the HPA.
func (s *Previews) round(ctx context.Context, h *scaling.History, o *observation, p *plan) preview {
	metrics := metricsOf(o.ehpa)
	names := identifiers(metrics)
	tolerance := toleranceOf(o.ehpa.Spec.Behavior)
	var asked []scaling.Proposal
	var out preview
	for i := range metrics {
		v, err := s.Values.Read(ctx, o.ehpa.Namespace, o.target.Selector, &metrics[i], o.now)
		one := scaling.Proposal{Metric: names[i], Err: err}
		said := autoscalingv1alpha1.ReplicaProposal{Name: names[i]}
		if err == nil {
			one.Replicas, said.Current, said.Target, one.Err = ask(&metrics[i], v, o.target, tolerance)
		}
		out.add(&asked, one, said)
	}
	for i := range p.candidates {
		c := &p.candidates[i]
		said := autoscalingv1alpha1.ReplicaProposal{Name: proposalPrediction + c.identifier}
		if c.err != nil {
			said.Message = sentence(c.err.Error())
			out.proposals = append(out.proposals, said)
			continue
		}
		one := scaling.Proposal{Metric: said.Name}
		one.Replicas, one.Err = scaling.Total(c.forecast.Value, c.perPod.AsApproximateFloat64(), o.target.Replicas, tolerance)
		said.Current, said.Target, said.Message = number(c.forecast.Value), c.perPod.String(), sentence(c.forecast.Why)
		out.add(&asked, one, said)
	}
	out.proposals = append(out.proposals, cronProposals(p)...)
	least := min(max(minReplicas(o.ehpa), p.floor.Replicas), o.ehpa.Spec.MaxReplicas)
	bounds := scaling.Bounds{Min: least, Max: o.ehpa.Spec.MaxReplicas}
	d, err := scaling.Decide(h, behaviorFor(o.ehpa.Spec.Behavior), bounds, o.now, o.target.Replicas, asked)
	out.expected, out.winner, out.why = d.Replicas, d.Winner, d.Why
	if err != nil {
		out.why = sentence("replicas stay: " + err.Error())
	}
	return out
}

// add books what one metric asks for.
func (p *preview) add(asked *[]scaling.Proposal, one scaling.Proposal, said autoscalingv1alpha1.ReplicaProposal) {
	if one.Err != nil {
		said.Message = sentence(one.Err.Error())
	} else {
		n := one.Replicas
		said.Replicas = &n
		one.Why = said.Name + " is " + said.Current + ", the target " + said.Target
	}
	*asked = append(*asked, one)
	p.proposals = append(p.proposals, said)
}

// behaviorFor translates the behavior of an HPA; what is not said is what the controller does by default.
func behaviorFor(b *autoscalingv2.HorizontalPodAutoscalerBehavior) scaling.Behavior {
	const stabilisation = 5 * time.Minute
	out := scaling.DefaultBehavior(stabilisation)
	full := behaviorOf(b)
	if full == nil {
		return out
	}
	out.Up = rulesFor(full.ScaleUp, 0)
	out.Down = rulesFor(full.ScaleDown, stabilisation)
	return out
}

func rulesFor(r *autoscalingv2.HPAScalingRules, stabilisation time.Duration) scaling.Rules {
	out := scaling.Rules{Stabilisation: stabilisation}
	if r.StabilizationWindowSeconds != nil {
		out.Stabilisation = time.Duration(*r.StabilizationWindowSeconds) * time.Second
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
