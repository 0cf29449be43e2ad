// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/pkg/vertical"
)

// ValidateEffectiveVerticalPodAutoscaler validates an EffectiveVerticalPodAutoscaler.
func ValidateEffectiveVerticalPodAutoscaler(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler, _ Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	v.addErrors(validateAPIVersion(e.Spec.TargetRef.APIVersion, spec.Child("targetRef", "apiVersion"))...)

	if p := e.Spec.UpdatePolicy; p != nil && p.MinReplicas != nil && p.UpdateMode != nil &&
		(*p.UpdateMode == autoscalingv1alpha1.UpdateModeOff || *p.UpdateMode == autoscalingv1alpha1.UpdateModeInitial) {
		v.warnf(spec.Child("updatePolicy", "minReplicas"), "has no effect: in mode %s no running pod is touched", *p.UpdateMode)
	}

	if p := e.Spec.ResourcePolicy; p != nil {
		path := spec.Child("resourcePolicy", "containerPolicies")
		for i := range p.ContainerPolicies {
			v.merge(validateContainerPolicy(&p.ContainerPolicies[i], path.Index(i)))
		}
	}

	// Each type of estimator may occur once.
	estimators := spec.Child("resourceEstimators")
	for i, r := range e.Spec.ResourceEstimators {
		if r.Type == "" {
			v.addErrors(field.Required(estimators.Index(i).Child("type"), "Percentile, OOM, Forecast, External, or the name of an external estimator"))
		}
		if err := validateEstimatorConfig(r); err != nil {
			v.addErrors(field.Invalid(estimators.Index(i).Child("config"), r.Type, err.Error()))
		}
	}

	for _, i := range duplicates(e.Spec.ResourceEstimators, func(r autoscalingv1alpha1.ResourceEstimator) string { return r.Type }) {
		v.addErrors(field.Duplicate(estimators.Index(i).Child("type"), e.Spec.ResourceEstimators[i].Type))
	}

	return v
}

// validateEstimatorConfig validates the settings of the estimators whose settings can be checked without the cluster.
func validateEstimatorConfig(r autoscalingv1alpha1.ResourceEstimator) error {
	var err error
	switch r.Type {
	case vertical.TypePercentile:
		_, err = vertical.ParsePercentileEstimator(r.Config)
	case vertical.TypeOOM:
		_, err = vertical.ParseOOMEstimator(r.Config)
	}

	return err
}

func validateContainerPolicy(p *autoscalingv1alpha1.ContainerResourcePolicy, path *field.Path) Result {
	v := validateBounds(p, path)
	for i, name := range p.ControlledResources {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			v.warnf(path.Child("controlledResources").Index(i), "has no effect: requests of %s are never changed, only those of cpu and memory", name)
		}
	}

	if isOff(p.ScaleUpPolicy) && isOff(p.ScaleDownPolicy) {
		v.warnf(path, "scaleUpPolicy and scaleDownPolicy are both Off: requests of %s are never changed", p.ContainerName)
	}

	v.merge(validateThresholds(p.ScaleUpPolicy, p.ScaleDownPolicy, path))
	return v
}

func isOff(s *autoscalingv1alpha1.ContainerScalingPolicy) bool {
	return s != nil && s.ScaleMode != nil && *s.ScaleMode == autoscalingv1alpha1.ScaleModeOff
}

// validateBounds validates minAllowed and maxAllowed.
func validateBounds(p *autoscalingv1alpha1.ContainerResourcePolicy, path *field.Path) Result {
	var v Result
	for _, name := range slices.Sorted(maps.Keys(p.MinAllowed)) {
		lower := p.MinAllowed[name]
		if lower.Sign() < 0 {
			v.addErrors(field.Invalid(path.Child("minAllowed").Key(string(name)), lower.String(), "must be 0 or more"))
		}
		if upper, ok := p.MaxAllowed[name]; ok && lower.Cmp(upper) > 0 {
			v.addErrors(field.Invalid(path.Child("minAllowed").Key(string(name)), lower.String(), "must be at most maxAllowed, "+upper.String()))
		}
	}

	for _, name := range slices.Sorted(maps.Keys(p.MaxAllowed)) {
		if upper := p.MaxAllowed[name]; upper.Sign() < 0 {
			v.addErrors(field.Invalid(path.Child("maxAllowed").Key(string(name)), upper.String(), "must be 0 or more"))
		}
	}

	return v
}

// validateThresholds validates the thresholds of both directions.
func validateThresholds(scaleUp, scaleDown *autoscalingv1alpha1.ContainerScalingPolicy, path *field.Path) Result {
	var v Result
	if scaleUp == nil || scaleDown == nil {
		return v
	}

	for _, name := range slices.Sorted(maps.Keys(scaleUp.MetricThresholds)) {
		raise := scaleUp.MetricThresholds[name].Utilization
		lower := scaleDown.MetricThresholds[name].Utilization
		if raise != nil && lower != nil && *raise < *lower {
			v.addErrors(field.Invalid(path.Child("scaleUpPolicy", "metricThresholds").Key(string(name)), *raise,
				"must not be less than that of scaleDownPolicy: the same request would be raised and lowered in turns"))
		}
	}

	return v
}

// DefaultEffectiveVerticalPodAutoscaler sets the API version of the target if it is unambiguous.
func DefaultEffectiveVerticalPodAutoscaler(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
	if ref := &e.Spec.TargetRef; ref.APIVersion == "" {
		ref.APIVersion = defaultAPIVersion(ref.Kind)
	}
}
