// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"encoding/json"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
)

// metricSpecs are the metrics that the autoscaler is about; without any the API server's default, written out so that status
// and forecast know it.
func metricSpecs(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) []autoscalingv2.MetricSpec {
	if len(ehpa.Spec.Metrics) > 0 {
		return ehpa.Spec.Metrics
	}
	const percent = 80
	utilization := int32(percent)
	return []autoscalingv2.MetricSpec{{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &utilization},
		},
	}}
}

func minReplicas(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) int32 {
	if ehpa.Spec.MinReplicas == nil {
		return 1
	}
	return *ehpa.Spec.MinReplicas
}

// forecastMetricSpec is the external metric that carries a forecast to the HPA: its value in all pods together, over what one
// pod should have of it.
func forecastMetricSpec(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, p predictedMetric) autoscalingv2.MetricSpec {
	key := scalingmetric.Key{
		TargetKind: ehpa.Spec.ScaleTargetRef.Kind, TargetName: ehpa.Spec.ScaleTargetRef.Name,
		TargetNamespace: ehpa.Namespace, Identifier: p.identifier,
	}
	perPod := p.perPod
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ExternalMetricSourceType,
		External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{
				Name: autoscalingv1alpha1.MetricPrediction, Selector: &metav1.LabelSelector{MatchLabels: key.MatchLabels()},
			},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &perPod},
		},
	}
}

// newHPASpec is what the HPA should be. floor is what the open cron windows ask for.
func newHPASpec(
	ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, ref autoscalingv2.CrossVersionObjectReference, floor int32, predictions []predictedMetric,
) autoscalingv2.HorizontalPodAutoscalerSpec {
	least := min(max(minReplicas(ehpa), floor), ehpa.Spec.MaxReplicas)
	spec := autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: ref, MinReplicas: &least, MaxReplicas: ehpa.Spec.MaxReplicas, Behavior: defaultedBehavior(ehpa.Spec.Behavior),
	}
	for _, m := range metricSpecs(ehpa) {
		spec.Metrics = append(spec.Metrics, *m.DeepCopy())
	}
	for _, p := range predictions {
		spec.Metrics = append(spec.Metrics, forecastMetricSpec(ehpa, p))
	}
	return spec
}

// defaultedBehavior fills in what the API server fills in, so that what is wanted and what is there can be compared.
func defaultedBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	if b == nil {
		return nil
	}
	const period = 15
	none := int32(0)
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: period}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: period}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp:   defaultedRules(b.ScaleUp, &none, []autoscalingv2.HPAScalingPolicy{pods, percent}),
		ScaleDown: defaultedRules(b.ScaleDown, nil, []autoscalingv2.HPAScalingPolicy{percent}),
	}
}

func defaultedRules(r *autoscalingv2.HPAScalingRules, window *int32, policies []autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	most := autoscalingv2.MaxChangePolicySelect
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: window, SelectPolicy: &most, Policies: policies}
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

// desiredHPA is the HPA that there should be: have, or a new one, with its spec, owner, labels and annotations.
func desiredHPA(o *observation, spec autoscalingv2.HorizontalPodAutoscalerSpec, propagate Propagation) *autoscalingv2.HorizontalPodAutoscaler {
	ehpa := o.ehpa
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: ehpa.Namespace, Name: managedName(ehpa.Name)}}
	ownLabels, ownAnnotations := managedLabels(ehpa, out.Name), map[string]string(nil)
	switch {
	case o.adoptable != nil:
		out = o.adoptable.DeepCopy()
		ownLabels = managedLabels(ehpa, out.Name)
		if _, kept := out.Annotations[autoscalingv1alpha1.AnnotationAdoptedSpec]; !kept && !metav1.IsControlledBy(out, ehpa) {
			if before, err := json.Marshal(out.Spec); err == nil {
				ownAnnotations = map[string]string{autoscalingv1alpha1.AnnotationAdoptedSpec: string(before)}
			}
		}
	case o.hpa != nil:
		out = o.hpa.DeepCopy()
		ownLabels = managedLabels(ehpa, out.Name)
	}
	out.Spec = spec
	out.Labels = mergedMetadata(out.Labels, ehpa.Labels, propagate.Labels, propagate.LabelPrefixes, ownLabels)
	out.Annotations = mergedMetadata(out.Annotations, ehpa.Annotations, propagate.Annotations, propagate.AnnotationPrefixes, ownAnnotations)
	setController(out, ehpa)
	return out
}

// managedLabels are gocrane's labels on what is made for an autoscaler.
func managedLabels(ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, name string) map[string]string {
	return map[string]string{
		autoscalingv1alpha1.LabelName:            labelValue(name),
		autoscalingv1alpha1.LabelPartOf:          labelValue(ehpa.Name),
		autoscalingv1alpha1.LabelManagedBy:       autoscalingv1alpha1.ManagedByEffectiveHPA,
		autoscalingv1alpha1.LabelEffectiveHPAUID: string(ehpa.UID),
	}
}

// setController makes the autoscaler the controller of an object, so that both go together.
func setController(o metav1.Object, ehpa *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) {
	if metav1.IsControlledBy(o, ehpa) {
		return
	}
	controller, block := true, false
	o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: autoscalingv1alpha1.GroupVersion.String(), Kind: "EffectiveHorizontalPodAutoscaler",
		Name: ehpa.Name, UID: ehpa.UID, Controller: &controller, BlockOwnerDeletion: &block,
	}))
}

// predictedMetric is a metric that can be forecast: its resourceIdentifier, and what one pod should have of it.
type predictedMetric struct {
	identifier string
	perPod     resource.Quantity
}
