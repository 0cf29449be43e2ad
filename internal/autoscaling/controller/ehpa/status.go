// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/condition"
)

// updateStatus patches the status where the decision changed. Changed metric values alone cause no write.
func (r *Reconciler) updateStatus(ctx context.Context, o observation, p plan, preview *decision, done applied) error {
	changed := o.ehpa.DeepCopy()
	changed.Status = newStatus(o, p, preview, done)
	if equality.Semantic.DeepEqual(changed.Status, o.ehpa.Status) {
		return nil
	}

	if c := condition.BecameFalse(o.ehpa.Status.Conditions, changed.Status.Conditions, autoscalingv1alpha1.ConditionReady); c != nil {
		r.recordEventf(o, corev1.EventTypeWarning, c.Reason, "%s", c.Message)
	}

	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(o.ehpa, client.MergeFromWithOptimisticLock{}))); err != nil {
		return fmt.Errorf("writing the status of the autoscaler %s/%s: %w", o.ehpa.Namespace, o.ehpa.Name, err)
	}

	return r.updateMetricsAnnotation(ctx, o.hpa, changed)
}

// updateMetricsAnnotation writes gocrane's annotation with the current metrics of the HPA. It is written after a status change only.
func (r *Reconciler) updateMetricsAnnotation(
	ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler,
) error {
	if hpa == nil || len(hpa.Status.CurrentMetrics) == 0 {
		return nil
	}

	text, err := yaml.Marshal(hpa.Status.CurrentMetrics)
	if err == nil && ehpa.Annotations[autoscalingv1alpha1.AnnotationCurrentMetrics] != string(text) {
		changed := ehpa.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, autoscalingv1alpha1.AnnotationCurrentMetrics, string(text))
		err = client.IgnoreNotFound(r.Client.Patch(ctx, changed, client.MergeFromWithOptions(ehpa, client.MergeFromWithOptimisticLock{})))
	}

	if err != nil {
		return fmt.Errorf("writing an annotation of the autoscaler %s/%s: %w", ehpa.Namespace, ehpa.Name, err)
	}

	return nil
}

// newStatus returns the status after a plan was executed.
func newStatus(o observation, p plan, preview *decision, done applied) autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerStatus {
	old := &o.ehpa.Status
	out := autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerStatus{
		ObservedGeneration: o.ehpa.Generation,
		LastScaleTime:      old.LastScaleTime,
		Crons:              p.crons.statuses,
		Conditions:         slices.Clone(old.Conditions),
	}

	if o.targetErr == nil {
		out.CurrentReplicas = new(o.target.Replicas)
	}

	var d decision
	switch {
	case preview != nil:
		out.Autoscaler = autoscalerPreview
		d = *preview
	case o.hpa != nil && (p.hpa != nil || p.keepObjects):
		out.Autoscaler = "HorizontalPodAutoscaler/" + o.hpa.Name
		d = hpaDecision(o.hpa, p)

		if o.hpa.Status.LastScaleTime != nil && !isPreview(o.ehpa) {
			out.LastScaleTime = o.hpa.Status.LastScaleTime
		}

	case o.foreignScaler != "":
		out.Autoscaler = strings.Replace(strings.Split(o.foreignScaler, " of ")[0], " ", "/", 1)
	}

	out.ExpectReplicas = d.replicas
	out.Winner = d.winner

	out.Why = d.reason
	out.Proposals = keepStableProposals(d.proposals, old.Proposals)
	if done.scaled {
		out.LastScaleTime = &metav1.Time{Time: o.now}
	}

	setConditions(&out.Conditions, o, p, done)
	return out
}

// autoscalerPreview is status.autoscaler of a computed preview.
const autoscalerPreview = "Preview"

// keepStableProposals returns the old proposals, with their values and messages, while each asks for the same number of replicas.
func keepStableProposals(proposals, old []autoscalingv1alpha1.ReplicaProposal) []autoscalingv1alpha1.ReplicaProposal {
	if len(proposals) != len(old) {
		return proposals
	}

	for i := range proposals {
		a := proposals[i]
		b := old[i]
		a.Current = b.Current
		if a.Replicas != nil && b.Replicas != nil {
			a.Message = b.Message // It contains numbers that change with the value.
		}

		if !equality.Semantic.DeepEqual(a, b) {
			return proposals
		}
	}

	return old
}

// setConditions updates the conditions of the plan, those that failures replaced, and the ones copied from the HPA.
func setConditions(conditions *[]metav1.Condition, o observation, p plan, done applied) {
	set := func(conditionType string, state *condition.State) {
		if state == nil {
			meta.RemoveStatusCondition(conditions, conditionType)
			return
		}

		state.Set(conditions, o.ehpa.Generation, o.now)
	}

	ready := cmp.Or(done.ready, p.ready)
	predictionReady := cmp.Or(done.predictionReady, p.forecasts.ready)
	if p.hpa != nil {
		ready = withHPAFailure(ready, *conditions, o.hpa, func(autoscalingv2.HorizontalPodAutoscalerCondition) bool { return true })
		predictionReady = withHPAFailure(predictionReady, *conditions, o.hpa, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return strings.Contains(c.Message, autoscalingv1alpha1.MetricPrediction)
		})
	}

	set(autoscalingv1alpha1.ConditionReady, ready)
	if !p.keepObjects { // Otherwise the forecasts were not read.
		set(autoscalingv1alpha1.ConditionPredictionReady, predictionReady)
		set(autoscalingv1alpha1.ConditionMetricRulesReady, p.forecasts.rulesReady)
	}

	set(autoscalingv1alpha1.ConditionCronReady, p.crons.ready)
	for _, kind := range []autoscalingv2.HorizontalPodAutoscalerConditionType{autoscalingv2.AbleToScale, autoscalingv2.ScalingActive, autoscalingv2.ScalingLimited} {
		copyHPACondition(conditions, o, kind)
	}
}

// withHPAFailure returns a state, or the failure of the HPA where the state is fine and the HPA is not: an HPA with a failing metric keeps its
// replicas, however low the load is. The message stays while the reason does, because it may contain numbers that change with each sync.
func withHPAFailure(
	state *condition.State, old []metav1.Condition, hpa *autoscalingv2.HorizontalPodAutoscaler, concerns func(autoscalingv2.HorizontalPodAutoscalerCondition) bool,
) *condition.State {
	if state == nil || !state.OK || hpa == nil {
		return state
	}

	for _, c := range hpa.Status.Conditions {
		isFailure := c.Status == corev1.ConditionFalse && (c.Type == autoscalingv2.AbleToScale || c.Type == autoscalingv2.ScalingActive)
		if !isFailure || !concerns(c) {
			continue
		}

		out := &condition.State{
			Type:    state.Type,
			Reason:  cmp.Or(c.Reason, string(c.Type)),
			Message: fmt.Sprintf("HorizontalPodAutoscaler %s keeps its replicas: %s", hpa.Name, c.Message),
		}
		if before := meta.FindStatusCondition(old, state.Type); before != nil && before.Status == metav1.ConditionFalse && before.Reason == out.Reason {
			out.Message = before.Message
		}

		return out
	}

	return state
}

// copyHPACondition copies a condition of the HPA. While status and reason stay, the old message stays too, because it may contain
// numbers that change with the value.
func copyHPACondition(conditions *[]metav1.Condition, o observation, kind autoscalingv2.HorizontalPodAutoscalerConditionType) {
	if o.hpa == nil {
		meta.RemoveStatusCondition(conditions, string(kind))
		return
	}

	i := slices.IndexFunc(o.hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		meta.RemoveStatusCondition(conditions, string(kind))
		return
	}

	// A message of the HPA has numbers that change with each sync, so it is kept as long as the reason is the same.
	c := o.hpa.Status.Conditions[i]
	message := condition.Message(c.Message)
	if old := meta.FindStatusCondition(*conditions, string(kind)); old != nil && string(old.Status) == string(c.Status) && old.Reason == c.Reason {
		message = old.Message
	}

	meta.SetStatusCondition(conditions, metav1.Condition{
		Type:               string(kind),
		Status:             metav1.ConditionStatus(c.Status),
		Reason:             cmp.Or(c.Reason, "Unknown"),
		Message:            message,
		ObservedGeneration: o.ehpa.Generation,
		LastTransitionTime: c.LastTransitionTime,
	})
}
