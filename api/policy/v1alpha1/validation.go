// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns what is wrong with a policy, with the path of each field; nothing if it can be used.
func (p *DynamicSchedulerPolicy) Validate() field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	errs = append(errs, validateSyncPolicy(p.Spec.SyncPeriod, spec.Child("syncPolicy"))...)
	errs = append(errs, validateMeasures(p.Spec.SyncPeriod, spec.Child("syncPolicy"))...)
	for i, predicate := range p.Spec.Predicate {
		path := spec.Child("predicate").Index(i)
		errs = append(errs, validateName(predicate.Name, path)...)
		errs = append(errs, validateFraction(predicate.MaxLimitPercent, path.Child("maxLimitPecent"))...)
	}

	errs = append(errs, validatePriority(p.Spec.Priority, spec.Child("priority"))...)
	for i, hot := range p.Spec.HotValue {
		path := spec.Child("hotValue").Index(i)
		if hot.TimeRange.Duration <= 0 {
			errs = append(errs, field.Invalid(path.Child("timeRange"), hot.TimeRange.Duration.String(), "must be more than 0"))
		}
		if hot.Count < 1 {
			errs = append(errs, field.Invalid(path.Child("count"), hot.Count, "must be 1 or more"))
		}
	}

	for _, resource := range slices.Sorted(maps.Keys(p.Spec.WaterMarks)) {
		path := spec.Child("waterMarks").Key(string(resource))
		if resource != corev1.ResourceCPU && resource != corev1.ResourceMemory {
			errs = append(errs, field.NotSupported(path, resource, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
		}

		errs = append(errs, validateWaterMarks(p.Spec.WaterMarks[resource], path)...)
	}

	return errs
}

func validateSyncPolicy(policies []SyncPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, policy := range policies {
		errs = append(errs, validateName(policy.Name, path.Index(i))...)
		if seen[policy.Name] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), policy.Name))
		}

		seen[policy.Name] = true
		if policy.Period.Duration <= 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("period"), policy.Period.Duration.String(), "must be more than 0"))
		}
	}

	return errs
}

// seriesName is what a series may be called that is read without a query.
var seriesName = regexp.MustCompile("^[a-zA-Z_][a-zA-Z0-9_]*$")

// validateMeasures checks what a metric measures and where it comes from. Names are keys of annotations.
func validateMeasures(policies []SyncPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, policy := range policies {
		at := path.Index(i)
		if policy.Name == "" {
			continue // reported above
		}

		if policy.Name == AnnotationNodeHotValue {
			errs = append(errs, field.Invalid(at.Child("name"), policy.Name, "is the key of the hot value"))
		}

		for _, msg := range validation.IsQualifiedName(policy.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), policy.Name, "is the key of an annotation: "+msg))
		}

		switch policy.Source {
		case "", MetricSourcePrometheus:
			if policy.Query == "" && !seriesName.MatchString(policy.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), policy.Name, "is not the name of a series: give a query"))
			}

		case MetricSourceMetricsServer, MetricSourceForecast:
			if policy.Query != "" {
				errs = append(errs, field.Forbidden(at.Child("query"), "only a metric of source Prometheus has one"))
			}
			if policy.SampleTime != "" {
				errs = append(errs, field.Forbidden(at.Child("sampleTime"), "only a metric of source Prometheus has one"))
			}
			if policy.Resource == "" && !measuresByName(policy.Name) {
				errs = append(errs, field.Required(at.Child("resource"), "the name does not say which: want cpu or memory"))
			}

		default:
			errs = append(errs, field.NotSupported(at.Child("source"), policy.Source,
				[]MetricSource{MetricSourcePrometheus, MetricSourceMetricsServer, MetricSourceForecast}))
		}

		if policy.Resource != "" && policy.Resource != corev1.ResourceCPU && policy.Resource != corev1.ResourceMemory {
			errs = append(errs, field.NotSupported(at.Child("resource"), policy.Resource,
				[]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
		}
	}

	return errs
}

func measuresByName(name string) bool {
	return strings.HasPrefix(name, "cpu_") || strings.HasPrefix(name, "mem_") || strings.HasPrefix(name, "memory_")
}

func validatePriority(policies []PriorityPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var sum float64
	for i, policy := range policies {
		errs = append(errs, validateName(policy.Name, path.Index(i))...)
		if math.IsNaN(policy.Weight) || math.IsInf(policy.Weight, 0) || policy.Weight < 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("weight"), policy.Weight, "must be a number of 0 or more"))
		}

		sum += policy.Weight
	}

	if len(policies) > 0 && len(errs) == 0 && (sum == 0 || math.IsInf(sum, 0)) {
		errs = append(errs, field.Invalid(path, sum, "the sum of the weights must be more than 0 and finite"))
	}

	return errs
}

func validateWaterMarks(marks WaterMarks, path *field.Path) field.ErrorList {
	errs := validateFraction(marks.Low, path.Child("low"))
	errs = append(errs, validateFraction(marks.Schedule, path.Child("schedule"))...)
	errs = append(errs, validateFraction(marks.Evict, path.Child("evict"))...)
	if len(errs) > 0 {
		return errs
	}

	if marks.Low >= marks.Schedule {
		errs = append(errs, field.Invalid(path.Child("low"), marks.Low, fmt.Sprintf("must be less than schedule, %v", marks.Schedule)))
	}
	if marks.Schedule >= marks.Evict {
		errs = append(errs, field.Invalid(path.Child("schedule"), marks.Schedule, fmt.Sprintf("must be less than evict, %v", marks.Evict)))
	}

	return errs
}

// validateFraction accepts 0 to 1; NaN fails both comparisons.
func validateFraction(value float64, path *field.Path) field.ErrorList {
	if value >= 0 && value <= 1 {
		return nil
	}

	return field.ErrorList{field.Invalid(path, value, "must be a fraction from 0 to 1")}
}

func validateName(name string, path *field.Path) field.ErrorList {
	if name != "" {
		return nil
	}

	return field.ErrorList{field.Required(path.Child("name"), "")}
}

// Validate returns what is wrong with a configuration, with the path of each field; nothing if it can be used.
func (c *RecommendationConfiguration) Validate() field.ErrorList {
	path := field.NewPath("recommenders")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, recommender := range c.Recommenders {
		errs = append(errs, validateName(recommender.Name, path.Index(i))...)
		if seen[recommender.Name] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("name"), recommender.Name))
		}

		seen[recommender.Name] = true
		for j, accepted := range recommender.AcceptedResources {
			if accepted.Kind == "" {
				errs = append(errs, field.Required(path.Index(i).Child("acceptedResources").Index(j).Child("kind"), ""))
			}
		}
	}

	return errs
}
