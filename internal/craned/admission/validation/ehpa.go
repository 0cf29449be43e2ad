// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"maps"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/pkg/scaling"
)

// ValidateEffectiveHorizontalPodAutoscaler validates an EffectiveHorizontalPodAutoscaler.
func ValidateEffectiveHorizontalPodAutoscaler(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, _ Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	s := &e.Spec
	v.addErrors(validateAPIVersion(s.ScaleTargetRef.APIVersion, spec.Child("scaleTargetRef", "apiVersion"))...)

	for i := range s.Crons {
		v.merge(validateCron(&s.Crons[i], s, spec.Child("crons").Index(i)))
	}

	// The schema checks this too, except for an object that bypasses the API server's list map.
	for _, i := range duplicates(s.Crons, func(c autoscalingv1alpha1.CronSpec) string { return c.CronName }) {
		v.addErrors(field.Duplicate(spec.Child("crons").Index(i).Child("name"), s.Crons[i].CronName))
	}

	v.merge(validateReplicas(s, spec))
	v.merge(validateMetrics(s.Metrics, spec.Child("metrics")))
	v.merge(validateBehavior(s.Behavior, spec.Child("behavior")))
	v.merge(validatePrediction(s.Prediction, spec.Child("prediction")))
	v.merge(validateMetricQueryAnnotations(e))

	return v
}

func validateCron(c *autoscalingv1alpha1.CronSpec, s *autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec, path *field.Path) Result {
	var v Result
	location := time.UTC
	if c.TimeZone != nil {
		// The schedule is checked in UTC if its zone is unknown, so that all errors are reported together.
		zone, err := time.LoadLocation(*c.TimeZone)
		if err != nil {
			v.addErrors(field.Invalid(path.Child("timezone"), *c.TimeZone, "must be a name of the IANA time zone database, such as Europe/Berlin"))
		} else {
			location = zone
		}

		if *c.TimeZone == scalingmetric.LocalZone {
			v.warnf(path.Child("timezone"), "Local is the zone of the pods of craned and metric-adapter (environment variable TZ), which must be the same")
		}
	}

	if _, err := scaling.NewCronWindow(c.CronName, string(c.Start), string(c.End), location, c.TargetReplicas); err != nil {
		v.addErrors(field.Invalid(path, string(c.Start)+" to "+string(c.End), strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	if c.TargetReplicas > s.MaxReplicas {
		v.warnf(path.Child("targetReplicas"), "%d is more than maxReplicas: the target gets %d", c.TargetReplicas, s.MaxReplicas)
	}
	if s.MinReplicas != nil && c.TargetReplicas <= *s.MinReplicas {
		v.warnf(path.Child("targetReplicas"), "has no effect: the target never has fewer than %d", *s.MinReplicas)
	}

	return v
}

func validateReplicas(s *autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec, spec *field.Path) Result {
	var v Result
	if s.MinReplicas != nil && *s.MinReplicas == s.MaxReplicas {
		v.warnf(spec.Child("maxReplicas"), "equals minReplicas: the target always has %d", s.MaxReplicas)
	}
	if s.MinReplicas != nil && *s.MinReplicas == 0 {
		v.warnf(spec.Child("minReplicas"), "0 needs the feature gate HPAScaleToZero of the API server, and a metric of the type Object or External")
	}
	if s.SpecificReplicas != nil && s.ScaleStrategy != autoscalingv1alpha1.ScaleStrategyPreview {
		v.warnf(spec.Child("specificReplicas"), "has no effect: the strategy is not %s", autoscalingv1alpha1.ScaleStrategyPreview)
	}

	return v
}

func validateMetrics(metrics []autoscalingv2.MetricSpec, path *field.Path) Result {
	var v Result
	for i := range metrics {
		m := &metrics[i]
		metricPath := path.Index(i)
		if m.Pods != nil {
			v.addErrors(validateMetricIdentifier(&m.Pods.Metric, metricPath.Child("pods", "metric"))...)
		}

		if m.Object != nil {
			v.addErrors(validatePathSegment(m.Object.DescribedObject.Name, metricPath.Child("object", "describedObject", "name"))...)
			v.addErrors(validateMetricIdentifier(&m.Object.Metric, metricPath.Child("object", "metric"))...)
		}

		if m.External != nil {
			v.addErrors(validateMetricIdentifier(&m.External.Metric, metricPath.Child("external", "metric"))...)
		}
	}

	for _, i := range duplicates(metrics, func(m autoscalingv2.MetricSpec) string { return m.String() }) {
		v.warnf(path.Index(i), "repeats an earlier item")
	}

	return v
}

func validateMetricIdentifier(m *autoscalingv2.MetricIdentifier, path *field.Path) field.ErrorList {
	return append(validatePathSegment(m.Name, path.Child("name")), validateLabelSelector(m.Selector, path.Child("selector"))...)
}

// validatePathSegment validates a name that becomes one segment of the path of a request, as the API server does for an HPA.
func validatePathSegment(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}

	if reasons := content.IsPathSegmentName(name); len(reasons) > 0 {
		return field.ErrorList{field.Invalid(path, name, reasons[0])}
	}

	return nil
}

func validateBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior, path *field.Path) Result {
	var v Result
	if b == nil {
		return v
	}

	for name, rules := range map[string]*autoscalingv2.HPAScalingRules{"scaleUp": b.ScaleUp, "scaleDown": b.ScaleDown} {
		if rules != nil && rules.SelectPolicy != nil && *rules.SelectPolicy == autoscalingv2.DisabledPolicySelect && len(rules.Policies) > 0 {
			v.warnf(path.Child(name, "policies"), "has no effect: selectPolicy is Disabled")
		}
	}

	slices.Sort(v.Warnings)
	return v
}

func validatePrediction(p *autoscalingv1alpha1.Prediction, path *field.Path) Result {
	var v Result
	if p == nil {
		return v
	}

	if p.PredictionAlgorithm == nil {
		v.warnf(path, "has no effect: without predictionAlgorithm nothing is forecast")
		return v
	}

	if p.PredictionWindowSeconds != nil {
		v.warnShortWindow(*p.PredictionWindowSeconds, path.Child("predictionWindowSeconds"))
	}

	a := p.PredictionAlgorithm
	v.merge(validateAlgorithm(predictionv1alpha1.Algorithm{AlgorithmType: a.AlgorithmType, DSP: a.DSP, Percentile: a.Percentile},
		path.Child("predictionAlgorithm")))

	return v
}

// validateMetricQueryAnnotations validates the annotations with the queries for the history of metrics.
func validateMetricQueryAnnotations(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) Result {
	var v Result
	known := scalingmetric.QueryAnnotations(e)
	hint := "; the annotations of the metrics are " + strings.Join(known, ", ")
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		id, ours := strings.CutPrefix(key, autoscalingv1alpha1.AnnotationMetricQueryPrefix)
		if !ours {
			continue
		}

		path := field.NewPath("metadata", "annotations").Key(key)
		if e.Spec.Prediction == nil || e.Spec.Prediction.PredictionAlgorithm == nil {
			v.warnf(path, "has no effect: nothing is forecast of metric %s", id)
			continue
		}

		if !slices.Contains(known, key) {
			v.warnf(path, "has no effect: it names no metric%s", hint)
			hint = "" // An object may have thousands of such annotations.
		}

		v.merge(validateExpression(e.Annotations[key], path))
	}

	return v
}

// DefaultEffectiveHorizontalPodAutoscaler sets the API version of the target. The time zone of schedules stays absent, because
// its default depends on the flag --ehpa-cron-local-time of the readers.
func DefaultEffectiveHorizontalPodAutoscaler(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) {
	if ref := &e.Spec.ScaleTargetRef; ref.APIVersion == "" {
		ref.APIVersion = defaultAPIVersion(ref.Kind)
	}
}
