// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/condition"
	"crane.io/crane/pkg/scaling"
)

// hpaDecision returns what the HPA decided and what each of its metrics asks for.
func hpaDecision(hpa *autoscalingv2.HorizontalPodAutoscaler, p plan) decision {
	if hpa.Status.ObservedGeneration == nil && len(hpa.Status.Conditions) == 0 {
		return decision{reason: "the HPA controller has not processed the HPA yet"}
	}
	if !hasDecision(hpa) {
		return decision{reason: "the HPA controller has not computed replicas yet", proposals: hpaProposals(hpa, p)}
	}

	out := decision{replicas: new(hpa.Status.DesiredReplicas), proposals: hpaProposals(hpa, p)}
	out.winner, out.reason = winner(out.proposals, *out.replicas, hpa)
	return out
}

// hasDecision reports whether the HPA controller has computed the desired replicas. They are 0 before, and 0 is also the number of a target that
// is scaled to nothing or switched off.
func hasDecision(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	return hpa.Status.DesiredReplicas > 0 || slices.ContainsFunc(hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScalingActive && (c.Status == corev1.ConditionTrue || c.Reason == autoscalingv1alpha1.ReasonScalingDisabled)
	})
}

// hpaProposals returns what each metric of the HPA asks for: the HPA algorithm on the values in the status of the HPA.
func hpaProposals(hpa *autoscalingv2.HorizontalPodAutoscaler, p plan) []autoscalingv1alpha1.ReplicaProposal {
	names := proposalNames(hpa.Spec.Metrics, p.forecasts.candidates)
	var out []autoscalingv1alpha1.ReplicaProposal
	for i := range hpa.Spec.Metrics {
		entry := proposal{name: names[i]}
		r, err := newReading(&hpa.Spec.Metrics[i], metricStatus(hpa, i))
		if c := p.forecasts.candidate(names[i]); c != nil && err == nil { // The HPA rounds the value.
			value := scalingmetric.NewQuantity(c.forecast.Value)
			r = reading{
				current:     amount{value.MilliValue(), formatNumber(c.forecast.Value)},
				target:      quantityAmount(c.perPod),
				totalMetric: true,
				totalValue:  true,
			}

			entry.message = c.forecast.Reason
		}

		entry.current = r.current.text
		entry.target = r.target.text

		var replicas int32
		if err == nil {
			replicas, err = r.replicas(hpa.Status.CurrentReplicas, scalingTolerance(hpa.Spec.Behavior))
		}

		out = append(out, entry.status(replicas, err))
	}

	for _, c := range p.forecasts.candidates { // Those that the HPA does not have.
		entry := proposal{name: proposalPrediction + c.identifier}
		err := c.err
		if err == nil {
			err = errors.New(p.forecasts.ready.Message)
		}
		if !slices.Contains(names, entry.name) {
			out = append(out, entry.status(0, err))
		}
	}

	return append(out, cronProposals(p.crons.floor)...)
}

// candidate returns the usable forecast of a proposal, nil for none.
func (p forecastPlan) candidate(proposal string) *forecastCandidate {
	for i := range p.candidates {
		if c := &p.candidates[i]; c.err == nil && proposalPrediction+c.identifier == proposal {
			return c
		}
	}

	return nil
}

// cronProposals returns a proposal with the effective floor for each open window.
func cronProposals(floor scaling.Floor) []autoscalingv1alpha1.ReplicaProposal {
	var out []autoscalingv1alpha1.ReplicaProposal
	for _, name := range floor.OpenWindows {
		out = append(out, autoscalingv1alpha1.ReplicaProposal{Name: proposalCron + name, Replicas: new(floor.Replicas)})
	}

	return out
}

// proposalNames returns the names of the proposals of an HPA's metrics. The selector of a forecast may have the identifier encoded.
func proposalNames(metrics []autoscalingv2.MetricSpec, candidates []forecastCandidate) []string {
	names := scalingmetric.Identifiers(metrics)
	for i := range metrics {
		e := metrics[i].External
		if e == nil || e.Metric.Name != autoscalingv1alpha1.MetricPrediction || e.Metric.Selector == nil {
			continue
		}

		identifier := e.Metric.Selector.MatchLabels[autoscalingv1alpha1.MetricLabelResourceIdentifier]
		for _, c := range candidates {
			if scalingmetric.LabelValue(c.identifier) == identifier {
				identifier = c.identifier
				break
			}
		}

		names[i] = proposalPrediction + identifier
	}

	return names
}

// metricStatus returns the value that the HPA read of its i-th metric, empty where it read none. The HPA controller keeps the order of the
// spec and leaves an empty entry where a metric failed.
func metricStatus(hpa *autoscalingv2.HorizontalPodAutoscaler, i int) autoscalingv2.MetricValueStatus {
	if i >= len(hpa.Status.CurrentMetrics) || hpa.Status.CurrentMetrics[i].Type != hpa.Spec.Metrics[i].Type {
		return autoscalingv2.MetricValueStatus{}
	}

	return currentValue(&hpa.Status.CurrentMetrics[i])
}

// reading is the current value of a metric and its target.
type reading struct {
	current, target amount
	// totalMetric marks a metric of all pods together; totalValue marks a current value of all pods together, else it is per pod.
	totalMetric, totalValue bool
}

// amount is a value and its text.
type amount struct {
	thousandths int64
	text        string
}

func percentAmount(p int32) amount { return amount{int64(p) * 1000, strconv.Itoa(int(p))} }

func quantityAmount(q resource.Quantity) amount { return amount{q.MilliValue(), q.String()} }

// newReading returns the target of a metric with its current value. Without a value the error wraps scaling.ErrNoMetric.
func newReading(m *autoscalingv2.MetricSpec, current autoscalingv2.MetricValueStatus) (reading, error) {
	target, external := metricTarget(m)
	var r reading
	found := false
	quantities := func(want, have *resource.Quantity) {
		found = have != nil
		r.target = quantityAmount(*want)
		if found {
			r.current = quantityAmount(*have)
		}
	}

	switch {
	case target.AverageUtilization != nil:
		found = current.AverageUtilization != nil
		r.target = percentAmount(*target.AverageUtilization)
		if found {
			r.current = percentAmount(*current.AverageUtilization)
		}
	case target.AverageValue != nil:
		r.totalMetric = external
		quantities(target.AverageValue, current.AverageValue)
	case target.Value != nil:
		quantities(target.Value, current.Value)
	}

	if !found {
		return r, fmt.Errorf("the HPA has no value of it: %w", scaling.ErrNoMetric)
	}

	return r, nil
}

// metricTarget returns the target of a metric, and whether the metric is of all pods together.
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

func currentValue(s *autoscalingv2.MetricStatus) autoscalingv2.MetricValueStatus {
	switch {
	case s.Resource != nil:
		return s.Resource.Current
	case s.ContainerResource != nil:
		return s.ContainerResource.Current
	case s.Pods != nil:
		return s.Pods.Current
	case s.Object != nil:
		return s.Object.Current
	case s.External != nil:
		return s.External.Current
	}

	return autoscalingv2.MetricValueStatus{}
}

// replicas returns how many replicas the reading asks for.
func (r reading) replicas(current int32, tolerance scaling.Tolerance) (int32, error) {
	switch {
	case r.totalValue:
		return scaling.ReplicasForTotal(r.current.thousandths, r.target.thousandths, current, tolerance)
	case r.totalMetric:
		// The status of the HPA has the value per pod, rounded up to a thousandth: on average half of one is too much.
		count := int64(current)
		return scaling.ReplicasForTotal(max(0, r.current.thousandths*count-count/2), r.target.thousandths, current, tolerance)
	}

	return scaling.ReplicasForValue(r.current.thousandths, r.target.thousandths, current, current, tolerance)
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

// winner returns the proposal with the most replicas, and the reason for the desired replicas of the HPA.
func winner(all []autoscalingv1alpha1.ReplicaProposal, desired int32, hpa *autoscalingv2.HorizontalPodAutoscaler) (name, reason string) {
	var best *autoscalingv1alpha1.ReplicaProposal
	for i := range all {
		if all[i].Replicas != nil && (best == nil || *all[i].Replicas > *best.Replicas) {
			best = &all[i]
		}
	}

	if best == nil {
		return "", fmt.Sprintf("no metric proposes replicas: the HPA stays at %d", desired)
	}

	name = best.Name
	reason = fmt.Sprintf("%s proposes %d, the highest of all", best.Name, *best.Replicas)
	if *best.Replicas == desired {
		return name, reason
	}

	// Conditions of the HPA explain why it does not follow the highest proposal.
	var limits []string
	for _, c := range hpa.Status.Conditions {
		if c.Type == autoscalingv2.ScalingLimited && c.Status == "True" || c.Type == autoscalingv2.AbleToScale && strings.HasPrefix(c.Reason, "ScaleDownStabilized") {
			limits = append(limits, c.Message)
		}
	}

	reason += fmt.Sprintf("; the HPA sets %d", desired)
	if len(limits) > 0 {
		reason += ": " + strings.Join(limits, "; ")
	}

	return name, condition.Message(reason)
}
