// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
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
)

// maxMessageLength bounds the message of a condition.
const maxMessageLength = 1024

// boundedMessage bounds a text and keeps it in one line.
func boundedMessage(text string) string {
	text = strings.ReplaceAll(text, "\n", "; ")
	if len(text) <= maxMessageLength {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessageLength], "") + "..."
}

func joinMessages(parts []string) string { return boundedMessage(strings.Join(parts, "; ")) }

// updateStatus writes the status where what was decided differs from what it says. Values of metrics alone, which move all the
// time, are no reason to write.
func (r *Reconciler) updateStatus(ctx context.Context, o *observation, p *plan) error {
	changed := o.ehpa.DeepCopy()
	changed.Status = newStatus(o, p)
	if equality.Semantic.DeepEqual(changed.Status, o.ehpa.Status) {
		return nil
	}
	r.recordNotReady(o, changed)
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(o.ehpa, client.MergeFromWithOptimisticLock{}))); err != nil {
		return fmt.Errorf("writing the status of the autoscaler %s/%s: %w", o.ehpa.Namespace, o.ehpa.Name, err)
	}
	return r.updateMetricsAnnotation(ctx, o, changed)
}

// updateMetricsAnnotation keeps gocrane's annotation with the current metrics of the HPA. It is written along with the status, not by itself.
func (r *Reconciler) updateMetricsAnnotation(ctx context.Context, o *observation, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) error {
	if o.hpa == nil || len(o.hpa.Status.CurrentMetrics) == 0 {
		return nil
	}
	text, err := yaml.Marshal(o.hpa.Status.CurrentMetrics)
	if err != nil {
		return fmt.Errorf("the annotation of the autoscaler %s/%s: %w", ehpa.Namespace, ehpa.Name, err)
	}
	if ehpa.Annotations[autoscalingv1alpha1.AnnotationCurrentMetrics] == string(text) {
		return nil
	}
	changed := ehpa.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, autoscalingv1alpha1.AnnotationCurrentMetrics, string(text))
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, changed, client.MergeFromWithOptions(ehpa, client.MergeFromWithOptimisticLock{}))); err != nil {
		return fmt.Errorf("the annotation of the autoscaler %s/%s: %w", ehpa.Namespace, ehpa.Name, err)
	}
	return nil
}

// recordNotReady leaves an event when the autoscaler stops working.
func (r *Reconciler) recordNotReady(o *observation, changed *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) {
	was := meta.FindStatusCondition(o.ehpa.Status.Conditions, autoscalingv1alpha1.ConditionReady)
	is := meta.FindStatusCondition(changed.Status.Conditions, autoscalingv1alpha1.ConditionReady)
	if is != nil && is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status || was.Reason != is.Reason) {
		r.recordEvent(o, corev1.EventTypeWarning, is.Reason, "%s", is.Message)
	}
}

// newStatus is the status that follows from a plan.
func newStatus(o *observation, p *plan) autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerStatus {
	old := &o.ehpa.Status
	out := autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerStatus{
		ObservedGeneration: o.ehpa.Generation, LastScaleTime: old.LastScaleTime, Crons: p.crons, Conditions: slices.Clone(old.Conditions),
	}
	if o.targetErr == nil {
		current := o.target.Replicas
		out.CurrentReplicas = &current
	}
	switch {
	case p.preview != nil:
		out.Autoscaler = autoscalerPreview
		p.preview.fill(&out)
	case o.hpa != nil && (p.hpa != nil || p.keepObjects):
		out.Autoscaler = "HorizontalPodAutoscaler/" + o.hpa.Name
		fillFromHPA(&out, o, p)
	case o.foreignScaler != "":
		out.Autoscaler = strings.Replace(strings.Split(o.foreignScaler, " of ")[0], " ", "/", 1)
	}
	if p.scaled {
		now := metav1.NewTime(o.now)
		out.LastScaleTime = &now
	}
	out.Proposals = keepStableProposals(out.Proposals, old.Proposals)
	setConditions(&out.Conditions, o, p)
	return out
}

// autoscalerPreview is what status.autoscaler says where Crane computes.
const autoscalerPreview = "Preview"

// keepStableProposals keeps the values that are there while nobody asks for another number of replicas.
func keepStableProposals(proposals, old []autoscalingv1alpha1.ReplicaProposal) []autoscalingv1alpha1.ReplicaProposal {
	if len(proposals) != len(old) {
		return proposals
	}
	for i := range proposals {
		a, b := proposals[i], old[i]
		a.Current = b.Current
		if a.Replicas != nil && b.Replicas != nil {
			a.Message = b.Message // Why it asks for what it asks for has numbers that move, too.
		}
		if !equality.Semantic.DeepEqual(a, b) {
			return proposals
		}
	}
	return old
}

// setConditions changes what differs; times of transition move only with the status of a condition.
func setConditions(conditions *[]metav1.Condition, o *observation, p *plan) {
	set := func(kind string, s *conditionState) {
		if s == nil {
			meta.RemoveStatusCondition(conditions, kind)
			return
		}
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: s.reason, Message: boundedMessage(s.message),
			ObservedGeneration: o.ehpa.Generation, LastTransitionTime: metav1.NewTime(o.now),
		}
		if s.ok {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(conditions, c)
	}
	set(autoscalingv1alpha1.ConditionReady, p.ready)
	if !p.keepObjects { // Nothing was looked at of the forecasts.
		set(autoscalingv1alpha1.ConditionPredictionReady, p.prediction)
	}
	set(autoscalingv1alpha1.ConditionCronReady, p.cron)
	for _, kind := range []autoscalingv2.HorizontalPodAutoscalerConditionType{autoscalingv2.AbleToScale, autoscalingv2.ScalingActive, autoscalingv2.ScalingLimited} {
		copyHPACondition(conditions, o, kind)
	}
}

// copyHPACondition takes over a condition of the HPA; the text of one that holds may hold numbers that move, so it stays.
func copyHPACondition(conditions *[]metav1.Condition, o *observation, kind autoscalingv2.HorizontalPodAutoscalerConditionType) {
	if o.hpa != nil {
		for _, c := range o.hpa.Status.Conditions {
			if c.Type != kind {
				continue
			}
			message := boundedMessage(c.Message)
			if old := meta.FindStatusCondition(*conditions, string(kind)); old != nil && string(old.Status) == string(c.Status) && old.Reason == c.Reason {
				message = old.Message
			}
			meta.SetStatusCondition(conditions, metav1.Condition{
				Type: string(kind), Status: metav1.ConditionStatus(c.Status), Reason: conditionReason(c.Reason), Message: message,
				ObservedGeneration: o.ehpa.Generation, LastTransitionTime: c.LastTransitionTime,
			})
			return
		}
	}
	meta.RemoveStatusCondition(conditions, string(kind))
}

// conditionReason gives a reason to a condition that comes without: ours need one.
func conditionReason(reason string) string {
	if reason == "" {
		return "Unknown"
	}
	return reason
}
