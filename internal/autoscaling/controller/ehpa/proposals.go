// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/scaling"
)

// fillFromHPA says what the HPA decided and what each of its metrics asked for.
func fillFromHPA(out *autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerStatus, o *observation, p *plan) {
	hpa := o.hpa
	if hpa.Status.LastScaleTime != nil && !isPreview(o.ehpa) {
		out.LastScaleTime = hpa.Status.LastScaleTime
	}
	if hpa.Status.ObservedGeneration == nil && len(hpa.Status.Conditions) == 0 {
		out.Why = "the HPA has not been looked at by its controller yet"
		return
	}
	expected := hpa.Status.DesiredReplicas
	out.ExpectReplicas = &expected
	out.Proposals = hpaProposals(o, p)
	out.Winner, out.Why = winner(out.Proposals, expected, hpa)
}

// hpaProposals says what each metric of the HPA asks for, by the algorithm of the HPA on the values that it saw.
func hpaProposals(o *observation, p *plan) []autoscalingv1alpha1.ReplicaProposal {
	hpa := o.hpa
	names := proposalNames(hpa.Spec.Metrics)
	var out []autoscalingv1alpha1.ReplicaProposal
	replicas := hpa.Status.CurrentReplicas
	for i := range hpa.Spec.Metrics {
		m := &hpa.Spec.Metrics[i]
		one := autoscalingv1alpha1.ReplicaProposal{Name: names[i]}
		status := metricStatus(hpa, i)
		r := newReading(m, status)
		if c := p.candidate(names[i]); c != nil && r.err == nil {
			r = reading{current: amount{c.forecast.Value, formatNumber(c.forecast.Value)}, target: quantityAmount(c.perPod), totalMetric: true, totalValue: true}
			one.Message = boundedMessage(c.forecast.Reason)
		}
		one.Target = r.target.text
		if r.err != nil {
			one.Message = r.err.Error()
			out = append(out, one)
			continue
		}
		one.Current = r.current.text
		asked, err := r.replicas(replicas, scalingTolerance(hpa.Spec.Behavior))
		if err != nil {
			one.Message = boundedMessage(err.Error())
		} else {
			one.Replicas = &asked
		}
		out = append(out, one)
	}
	out = append(out, ignoredForecasts(p, names)...)
	return append(out, cronProposals(p)...)
}

// candidate is the forecast that a proposal is about; nil where it is about none, or where the forecast takes no part. What the
// HPA shows of it is rounded.
func (p *plan) candidate(proposal string) *forecastCandidate {
	for i := range p.candidates {
		if c := &p.candidates[i]; c.err == nil && proposalPrediction+c.identifier == proposal {
			return c
		}
	}
	return nil
}

// ignoredForecasts lists the forecasts that take no part.
func ignoredForecasts(p *plan, names []string) []autoscalingv1alpha1.ReplicaProposal {
	var out []autoscalingv1alpha1.ReplicaProposal
	for _, c := range p.candidates {
		name := proposalPrediction + c.identifier
		if slices.Contains(names, name) {
			continue
		}
		one := autoscalingv1alpha1.ReplicaProposal{Name: name}
		switch {
		case c.err != nil:
			one.Message = boundedMessage(c.err.Error())
		case p.prediction != nil:
			one.Message = boundedMessage(p.prediction.message)
		}
		out = append(out, one)
	}
	return out
}

func cronProposals(p *plan) []autoscalingv1alpha1.ReplicaProposal {
	var out []autoscalingv1alpha1.ReplicaProposal
	for _, name := range p.floor.OpenWindows {
		floor := p.floor.Replicas
		out = append(out, autoscalingv1alpha1.ReplicaProposal{Name: proposalCron + name, Replicas: &floor})
	}
	return out
}

// proposalNames names the metrics of an HPA as the proposals do.
func proposalNames(metrics []autoscalingv2.MetricSpec) []string {
	names := resourceIdentifiers(metrics)
	for i := range metrics {
		if e := metrics[i].External; e != nil && e.Metric.Name == autoscalingv1alpha1.MetricPrediction && e.Metric.Selector != nil {
			names[i] = proposalPrediction + e.Metric.Selector.MatchLabels[autoscalingv1alpha1.MetricLabelResourceIdentifier]
		}
	}
	return names
}

// metricStatus is what the HPA saw of its i-th metric; nil where it could not read it. The HPA controller keeps the order of
// the spec and leaves a hole where a metric failed.
func metricStatus(hpa *autoscalingv2.HorizontalPodAutoscaler, i int) *autoscalingv2.MetricStatus {
	if i >= len(hpa.Status.CurrentMetrics) || hpa.Status.CurrentMetrics[i].Type != hpa.Spec.Metrics[i].Type {
		return nil
	}
	return &hpa.Status.CurrentMetrics[i]
}

// reading is a metric with its value: how it asks for replicas depends on what the target is about.
type reading struct {
	current, target amount
	// totalMetric: the metric is one of all pods together; whole: so is the value, else it is the share of one pod.
	totalMetric, totalValue bool
	err                     error
}

// amount is a value and how it is written.
type amount struct {
	value float64
	text  string
}

func percentAmount(p int32) amount { return amount{float64(p), strconv.Itoa(int(p))} }

func quantityAmount(q resource.Quantity) amount { return amount{q.AsApproximateFloat64(), q.String()} }

// newReading pairs what a metric aims for with what was seen.
func newReading(m *autoscalingv2.MetricSpec, s *autoscalingv2.MetricStatus) reading {
	target, external := metricTarget(m)
	var r reading
	var current *autoscalingv2.MetricValueStatus
	if s != nil {
		current = currentValue(s)
	}
	switch {
	case target.AverageUtilization != nil:
		r.target = percentAmount(*target.AverageUtilization)
		if current != nil && current.AverageUtilization != nil {
			r.current = percentAmount(*current.AverageUtilization)
			return r
		}
	case target.AverageValue != nil:
		r.target, r.totalMetric = quantityAmount(*target.AverageValue), external
		if current != nil && current.AverageValue != nil {
			r.current = quantityAmount(*current.AverageValue)
			return r
		}
	case target.Value != nil:
		r.target = quantityAmount(*target.Value)
		if current != nil && current.Value != nil {
			r.current = quantityAmount(*current.Value)
			return r
		}
	}
	r.err = fmt.Errorf("the HPA has no value of it: %w", scaling.ErrNoMetric)
	return r
}

func metricTarget(m *autoscalingv2.MetricSpec) (target autoscalingv2.MetricTarget, external bool) {
	switch {
	case m.Resource != nil:
		return m.Resource.Target, false
	case m.ContainerResource != nil:
		return m.ContainerResource.Target, false
	case m.Pods != nil:
		return m.Pods.Target, false
	case m.Object != nil:
		return m.Object.Target, true
	case m.External != nil:
		return m.External.Target, true
	}
	return autoscalingv2.MetricTarget{}, false
}

func currentValue(s *autoscalingv2.MetricStatus) *autoscalingv2.MetricValueStatus {
	switch {
	case s.Resource != nil:
		return &s.Resource.Current
	case s.ContainerResource != nil:
		return &s.ContainerResource.Current
	case s.Pods != nil:
		return &s.Pods.Current
	case s.Object != nil:
		return &s.Object.Current
	case s.External != nil:
		return &s.External.Current
	}
	return nil
}

// replicas is what the reading asks for at a number of replicas.
func (r reading) replicas(replicas int32, tolerance scaling.Tolerance) (int32, error) {
	switch {
	case r.totalValue:
		return scaling.ReplicasForTotal(r.current.value, r.target.value, replicas, tolerance)
	case r.totalMetric:
		// The HPA shows the share of a pod, rounded up to the thousandth.
		const half = 0.0005
		return scaling.ReplicasForTotal(max(0, r.current.value-half)*float64(replicas), r.target.value, replicas, tolerance)
	}
	return scaling.ReplicasForValue(r.current.value, r.target.value, replicas, replicas, tolerance)
}

func scalingTolerance(b *autoscalingv2.HorizontalPodAutoscalerBehavior) scaling.Tolerance {
	t := scaling.DefaultTolerance()
	if b != nil && b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
		t.Up = b.ScaleUp.Tolerance.AsApproximateFloat64()
	}
	if b != nil && b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
		t.Down = b.ScaleDown.Tolerance.AsApproximateFloat64()
	}
	return t
}

// winner names the proposal that asked for most, and says how the number that counts came about.
func winner(all []autoscalingv1alpha1.ReplicaProposal, expected int32, hpa *autoscalingv2.HorizontalPodAutoscaler) (name, why string) {
	var best *autoscalingv1alpha1.ReplicaProposal
	for i := range all {
		if all[i].Replicas != nil && (best == nil || *all[i].Replicas > *best.Replicas) {
			best = &all[i]
		}
	}
	if best == nil {
		return "", fmt.Sprintf("no metric asks for anything: the HPA stays at %d", expected)
	}
	name, why = best.Name, fmt.Sprintf("%s asks for %d, the most of all", best.Name, *best.Replicas)
	if *best.Replicas == expected {
		return name, why
	}
	var limits []string
	for _, c := range hpa.Status.Conditions {
		if c.Type == autoscalingv2.ScalingLimited && c.Status == "True" || c.Type == autoscalingv2.AbleToScale && strings.HasPrefix(c.Reason, "ScaleDownStabilized") {
			limits = append(limits, c.Message)
		}
	}
	why += fmt.Sprintf("; the HPA wants %d", expected)
	if len(limits) > 0 {
		why += ": " + strings.Join(limits, "; ")
	}
	return name, boundedMessage(why)
}
