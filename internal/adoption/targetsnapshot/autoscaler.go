// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/adoption"
)

// targetAutoscaler is the autoscaler that restricts the adoption of a target.
type targetAutoscaler struct {
	// name of the HorizontalPodAutoscaler; empty for none.
	name string
	// object is the EffectiveHorizontalPodAutoscaler that owns it, and targets are its utilization targets; nil and empty if
	// Crane does not own it.
	object  *unstructured.Unstructured
	targets []adoption.Target
	// utilization are all shares of requests on which an autoscaler acts, owned or not.
	utilization []workload.UtilizationTarget
}

// readAutoscaler reads the autoscaler that acts on the utilization of a request or, for replicas, any autoscaler.
func (r SnapshotReader) readAutoscaler(ctx context.Context, s *TargetSnapshot, analysisType analysisv1alpha1.AnalysisType) error {
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := r.Live.List(ctx, &list, client.InNamespace(s.Object.GetNamespace())); err != nil {
		return fmt.Errorf("listing the autoscalers of %s: %w", s.Object.GetNamespace(), err)
	}

	s.autoscaler = targetAutoscaler{}
	for i := range list.Items {
		ref := list.Items[i].Spec.ScaleTargetRef
		autoscaler := workload.AutoscalerOf(&list.Items[i])
		if !s.isReferredToBy(ref.APIVersion, ref.Kind, ref.Name) || analysisType == analysisv1alpha1.AnalysisTypeResource && len(autoscaler.UtilizationTargets()) == 0 {
			continue
		}

		utilization := slices.Concat(s.autoscaler.utilization, autoscaler.UtilizationTargets())
		if s.autoscaler.name != "" { // It is unknown which of two acts.
			s.autoscaler = targetAutoscaler{name: s.autoscaler.name + " and " + autoscaler.Name, utilization: utilization}
			continue
		}

		s.autoscaler.name = autoscaler.Name
		s.autoscaler.utilization = utilization

		if analysisType != analysisv1alpha1.AnalysisTypeResource || autoscaler.Owner == "" {
			continue
		}

		if err := r.readEffectiveHPA(ctx, s, autoscaler.Owner); err != nil {
			return err
		}
	}

	return nil
}

// readEffectiveHPA reads the EffectiveHorizontalPodAutoscaler that defines the targets.
func (r SnapshotReader) readEffectiveHPA(ctx context.Context, s *TargetSnapshot, name string) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(autoscalingv1alpha1.GroupVersion.WithKind("EffectiveHorizontalPodAutoscaler"))

	err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.Object.GetNamespace(), Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil // Its HorizontalPodAutoscaler is about to be deleted too.
	}
	if err != nil {
		return fmt.Errorf("reading EffectiveHorizontalPodAutoscaler %s/%s: %w", s.Object.GetNamespace(), name, err)
	}

	if o.GetDeletionTimestamp() != nil {
		return nil
	}

	for _, t := range (workload.Autoscaler{Metrics: decodeMetrics(o)}).UtilizationTargets() {
		s.autoscaler.targets = append(s.autoscaler.targets, adoption.Target{
			Container: t.Container, Memory: t.Resource == corev1.ResourceMemory, Percent: t.Percent,
		})
	}

	if len(s.autoscaler.targets) > 0 {
		s.autoscaler.object = o
	}

	return nil
}

// decodeMetrics returns the metrics of an autoscaler; none if they cannot be decoded, since they cannot be changed then.
func decodeMetrics(o *unstructured.Unstructured) []autoscalingv2.MetricSpec {
	var spec struct {
		Metrics []autoscalingv2.MetricSpec `json:"metrics"`
	}

	raw, _, err := unstructured.NestedMap(o.Object, "spec")
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec) != nil {
		return nil
	}

	return spec.Metrics
}

// actsOn reports whether the autoscaler acts on the utilization of a request that differs between two sizes.
func (a targetAutoscaler) actsOn(now, wanted adoption.Size) bool {
	for _, t := range a.utilization {
		for name, to := range wanted.Containers {
			from := now.Containers[name]
			if (t.Container == "" || t.Container == name) &&
				(t.Resource == corev1.ResourceCPU && changes(from.CPURequest, to.CPURequest) ||
					t.Resource == corev1.ResourceMemory && changes(from.MemoryRequest, to.MemoryRequest)) {
				return true
			}
		}
	}

	return false
}

// changes reports whether an amount is to be set that differs from the present one.
func changes[T comparable](now, wanted *T) bool {
	return wanted != nil && (now == nil || *now != *wanted)
}

// blockReason returns why a size must not be applied to a target with this autoscaler; now is the size of its pods.
func (a targetAutoscaler) blockReason(analysisType analysisv1alpha1.AnalysisType, rec *analysisv1alpha1.Recommendation, now, wanted adoption.Size) BlockReason {
	switch {
	case a.name == "":
		return BlockReason{}
	case analysisType != analysisv1alpha1.AnalysisTypeResource:
		return BlockReason{ReasonAutoscaled, fmt.Sprintf("HorizontalPodAutoscaler %s sets the replicas of the workload", a.name)}
	case a.object == nil && !a.actsOn(now, wanted):
		return BlockReason{}
	case a.object == nil:
		return BlockReason{ReasonAutoscaled, fmt.Sprintf("HorizontalPodAutoscaler %s acts on the share of a request that would change, "+
			"and its target is not Crane's to change with it; so neither is applied", a.name)}
	}

	// Crane's own autoscaler is changed together with the requests, to the targets of the scale point.
	text := rec.Annotations[analysisv1alpha1.AnnotationScalePoint]
	if text == "" {
		return BlockReason{}
	}

	var point scalePoint
	if err := json.Unmarshal([]byte(text), &point); err != nil {
		return BlockReason{ReasonNotApplicable, fmt.Sprintf("annotation %s of the recommendation: %v", analysisv1alpha1.AnnotationScalePoint, err)}
	}

	if point.Name != a.object.GetName() {
		return BlockReason{ReasonNotApplicable, fmt.Sprintf("the recommendation was decided with autoscaler %s, and the workload has %s now", point.Name, a.object.GetName())}
	}

	return BlockReason{}
}
