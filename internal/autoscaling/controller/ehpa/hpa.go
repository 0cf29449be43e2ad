// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"encoding/json"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
)

func minReplicas(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) int32 {
	return ptr.Deref(ehpa.Spec.MinReplicas, 1)
}

// forecastMetricSpec returns the external metric that carries a forecast to the HPA: the predicted value of all pods together, with the
// target of one pod.
func forecastMetricSpec(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, p predictedMetric) autoscalingv2.MetricSpec {
	key := scalingmetric.Key{
		TargetKind:      ehpa.Spec.ScaleTargetRef.Kind,
		TargetName:      ehpa.Spec.ScaleTargetRef.Name,
		TargetNamespace: ehpa.Namespace,
		Identifier:      p.identifier,
	}

	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ExternalMetricSourceType,
		External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{
				Name: autoscalingv1alpha1.MetricPrediction, Selector: &metav1.LabelSelector{MatchLabels: key.MatchLabels()},
			},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &p.perPod},
		},
	}
}

// newHPASpec returns the spec of the HPA. floor is the number of replicas that the open cron windows ask for.
func newHPASpec(
	ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, ref autoscalingv2.CrossVersionObjectReference, floor int32, forecasts []predictedMetric,
) autoscalingv2.HorizontalPodAutoscalerSpec {
	spec := autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: ref,
		MinReplicas:    new(min(max(minReplicas(ehpa), floor), ehpa.Spec.MaxReplicas)),
		MaxReplicas:    ehpa.Spec.MaxReplicas,
		Behavior:       defaultedBehavior(ehpa.Spec.Behavior),
	}

	for _, m := range scalingmetric.MetricSpecs(ehpa) {
		spec.Metrics = append(spec.Metrics, *m.DeepCopy())
	}

	for _, p := range forecasts {
		spec.Metrics = append(spec.Metrics, forecastMetricSpec(ehpa, p))
	}

	return spec
}

// defaultedBehavior sets the defaults of the API server, so that a desired spec equals a stored one.
func defaultedBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	if b == nil {
		return nil
	}

	const period = 15
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: period}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: period}

	return &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp:   defaultedRules(b.ScaleUp, new(int32(0)), []autoscalingv2.HPAScalingPolicy{pods, percent}),
		ScaleDown: defaultedRules(b.ScaleDown, nil, []autoscalingv2.HPAScalingPolicy{percent}),
	}
}

func defaultedRules(r *autoscalingv2.HPAScalingRules, window *int32, policies []autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: window, SelectPolicy: new(autoscalingv2.MaxChangePolicySelect), Policies: policies}
	if r == nil {
		return out
	}

	if r.SelectPolicy != nil {
		out.SelectPolicy = r.SelectPolicy
	}
	if r.StabilizationWindowSeconds != nil {
		out.StabilizationWindowSeconds = r.StabilizationWindowSeconds
	}
	if r.Policies != nil {
		out.Policies = r.Policies
	}

	out.Tolerance = r.Tolerance
	return out
}

// desiredHPA returns the existing HPA, or a new one, with the desired spec, controller, labels and annotations. The spec of an HPA that
// is adopted is kept in an annotation.
func desiredHPA(
	ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, existing *autoscalingv2.HorizontalPodAutoscaler,
	spec autoscalingv2.HorizontalPodAutoscalerSpec, propagate Propagation,
) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: ehpa.Namespace, Name: managedName(ehpa.Name)}}
	var annotations map[string]string
	if existing != nil {
		out = existing.DeepCopy()
		if _, adopted := out.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec]; !adopted && !metav1.IsControlledBy(out, ehpa) {
			if before, err := json.Marshal(out.Spec); err == nil {
				annotations = map[string]string{autoscalingv1alpha1.AnnotationAdoptedSpec: string(before)}
			}
		}
	}

	out.Spec = spec
	out.Labels = mergedMetadata(out.Labels, ehpa.Labels, propagate.Labels, propagate.LabelPrefixes, managedLabels(ehpa, out.Name))
	out.Annotations = mergedMetadata(out.Annotations, ehpa.Annotations, propagate.Annotations, propagate.AnnotationPrefixes, annotations)
	setController(out, ehpa)

	return out
}

// managedLabels returns gocrane's labels of objects that an autoscaler controls.
func managedLabels(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, name string) map[string]string {
	return map[string]string{
		autoscalingv1alpha1.LabelName:            scalingmetric.LabelValue(name),
		autoscalingv1alpha1.LabelPartOf:          scalingmetric.LabelValue(ehpa.Name),
		autoscalingv1alpha1.LabelManagedBy:       autoscalingv1alpha1.ManagedByEffectiveHPA,
		autoscalingv1alpha1.LabelEffectiveHPAUID: string(ehpa.UID),
	}
}

// setController makes the autoscaler the controller of an object, so that the garbage collector deletes both.
func setController(o metav1.Object, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) {
	if metav1.IsControlledBy(o, ehpa) {
		return
	}

	o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion:         autoscalingv1alpha1.GroupVersion.String(),
		Kind:               ehpaKind,
		Name:               ehpa.Name,
		UID:                ehpa.UID,
		Controller:         new(true),
		BlockOwnerDeletion: new(false),
	}))
}
