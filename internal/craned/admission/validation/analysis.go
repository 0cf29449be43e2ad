// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// ValidateRecommendationRule validates a RecommendationRule.
func ValidateRecommendationRule(r *analysisv1alpha1.RecommendationRule, f Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	anyNamespace := r.Spec.NamespaceSelector.Any
	v.merge(validateResourceSelectors(r.Spec.ResourceSelectors, spec.Child("resourceSelectors")))

	for i, s := range r.Spec.ResourceSelectors {
		if isClusterScoped(s) && !anyNamespace {
			v.warnf(spec.Child("resourceSelectors").Index(i), "a %s has no namespace and is found only with namespaceSelector.any: true", s.Kind)
		}
	}

	v.merge(validateNamespaceSelector(r.Spec.NamespaceSelector, spec.Child("namespaceSelector")))
	v.merge(validateRecommenders(r.Spec.Recommenders, f, spec.Child("recommenders")))

	if text := strings.TrimSpace(r.Spec.RunInterval); text != "" {
		if d, err := units.ParseDuration(text); err != nil {
			v.addErrors(field.Invalid(spec.Child("runInterval"), r.Spec.RunInterval, err.Error()))
		} else if d <= 0 {
			v.addErrors(field.Invalid(spec.Child("runInterval"), r.Spec.RunInterval, "must be more than zero; leave it out to run once"))
		}
	}

	return v
}

func validateResourceSelectors(selectors []analysisv1alpha1.ResourceSelector, path *field.Path) Result {
	var v Result
	if len(selectors) == 0 {
		v.warnf(path, "is empty: nothing is selected")
	}

	for i, s := range selectors {
		v.addErrors(validateAPIVersion(s.APIVersion, path.Index(i).Child("apiVersion"))...)
		v.addErrors(validateLabelSelector(s.LabelSelector, path.Index(i).Child("labelSelector"))...)
	}

	for _, i := range duplicates(selectors, func(s analysisv1alpha1.ResourceSelector) string {
		return strings.Join([]string{s.APIVersion, s.Kind, s.Name, s.LabelSelector.String()}, "|")
	}) {
		v.warnf(path.Index(i), "repeats an earlier item")
	}

	return v
}

func validateNamespaceSelector(s analysisv1alpha1.NamespaceSelector, path *field.Path) Result {
	var v Result
	switch {
	case s.Any && len(s.MatchNames) > 0:
		v.warnf(path.Child("matchNames"), "has no effect: any is true")
	case !s.Any && len(s.MatchNames) == 0:
		v.warnf(path, "selects no namespace; set any: true, or name some in matchNames")
	}

	for _, i := range duplicates(s.MatchNames, identity) {
		v.warnf(path.Child("matchNames").Index(i), "%s occurs earlier in the list", s.MatchNames[i])
	}

	return v
}

func validateRecommenders(list []analysisv1alpha1.Recommender, f Facts, path *field.Path) Result {
	var v Result
	if len(list) == 0 {
		v.warnf(path, "is empty: nothing is recommended")
	}

	// Two recommenders with one name would overwrite each other's Recommendation.
	for _, i := range duplicates(list, func(r analysisv1alpha1.Recommender) string { return r.Name }) {
		v.addErrors(field.Duplicate(path.Index(i).Child("name"), list[i].Name))
	}

	for i, r := range list {
		v.merge(validateRecommender(r, f, path.Index(i)))
	}

	return v
}

// validateRecommender warns of a name or a setting that the current configuration does not accept. A later configuration may
// accept it; until then the condition Ready of the rule has the error.
func validateRecommender(r analysisv1alpha1.Recommender, f Facts, path *field.Path) Result {
	var v Result
	if f.ValidateRecommender == nil {
		return v
	}

	if err := f.ValidateRecommender(r); err != nil {
		v.warnf(path, "cannot run: %v", err)
	}

	return v
}

// ValidateAnalytics validates an Analytics, the older form of a rule.
func ValidateAnalytics(a *analysisv1alpha1.Analytics, f Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	v.merge(validateResourceSelectors(a.Spec.ResourceSelectors, spec.Child("resourceSelectors")))

	// Settings that the recommender does not have are ignored: they are warned of and left out of the check.
	recommender := analysisv1alpha1.Recommender{Name: string(a.Spec.Type), Config: a.Spec.Config}
	if f.ValidateRecommender != nil {
		var ignored []string
		recommender.Config, ignored = settings.SplitUnknown(recommender.Config, f.ValidateRecommender(recommender))
		for _, key := range ignored {
			v.warnf(spec.Child("config").Key(key), "has no effect: %s has no such setting", a.Spec.Type)
		}
	}

	v.merge(validateRecommender(recommender, f, spec.Child("type")))
	v.merge(validateCompletionStrategy(a.Spec.CompletionStrategy, spec.Child("completionStrategy")))

	minPeriod := int64(analysisv1alpha1.MinAnalyticsPeriod.Seconds())
	if s := a.Spec.CompletionStrategy; s != nil && s.CompletionStrategyType == analysisv1alpha1.CompletionStrategyPeriodical && a.Namespace != f.Namespace {
		if p := ptr.Deref(s.PeriodSeconds, 0); p > 0 && p < minPeriod {
			v.warnf(spec.Child("completionStrategy", "periodSeconds"), "counts as %d, the least outside namespace %s", minPeriod, f.Namespace)
		}
	}

	for i, s := range a.Spec.ResourceSelectors {
		if isClusterScoped(s) && a.Namespace != f.Namespace {
			v.warnf(spec.Child("resourceSelectors").Index(i), "a %s has no namespace and is found only by an Analytics in %s", s.Kind, f.Namespace)
		}
	}

	return v
}

func validateCompletionStrategy(s *analysisv1alpha1.CompletionStrategy, path *field.Path) Result {
	var v Result
	if s != nil && s.CompletionStrategyType != analysisv1alpha1.CompletionStrategyPeriodical && s.PeriodSeconds != nil {
		v.warnf(path.Child("periodSeconds"), "has no effect: only %s repeats an analysis", analysisv1alpha1.CompletionStrategyPeriodical)
	}

	return v
}

// ValidateRecommendation validates a Recommendation that a client other than Crane writes.
func ValidateRecommendation(r *analysisv1alpha1.Recommendation, f Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	ref := r.Spec.TargetRef
	v.addErrors(validateAPIVersion(ref.APIVersion, spec.Child("targetRef", "apiVersion"))...)

	// The reconciler checks this again: the webhook may be down.
	if err := targetindex.CheckNamespace(r, f.Namespace); err != nil {
		v.addErrors(err)
	}

	if r.Spec.AdoptionType == analysisv1alpha1.AdoptionTypeAuto && slices.Contains([]analysisv1alpha1.AnalysisType{
		analysisv1alpha1.AnalysisTypeIdleNode, analysisv1alpha1.AnalysisTypeVolume, analysisv1alpha1.AnalysisTypeService,
	}, r.Spec.Type) {
		v.warnf(spec.Child("adoptionType"), "Auto applies nothing for %s: nodes, volumes and services are never deleted by Crane", r.Spec.Type)
	}

	v.merge(validateCompletionStrategy(r.Spec.CompletionStrategy, spec.Child("completionStrategy")))
	return v
}

// ValidateConfigSet validates the overrides of gocrane's first recommenders.
func ValidateConfigSet(*analysisv1alpha1.ConfigSet, Facts) Result {
	var v Result
	v.warnf(field.NewPath("configs"), "has no effect: set config in the recommenders of a RecommendationRule")
	return v
}

// secondsPerDay is the default completion interval of an analysis.
const secondsPerDay = 24 * 60 * 60

// DefaultAnalytics sets gocrane's defaults.
func DefaultAnalytics(a *analysisv1alpha1.Analytics) { setDefaultPeriod(a.Spec.CompletionStrategy) }

// DefaultRecommendation sets gocrane's defaults.
func DefaultRecommendation(r *analysisv1alpha1.Recommendation) {
	setDefaultPeriod(r.Spec.CompletionStrategy)
	setDefaultAPIVersion(&r.Spec.TargetRef)
}

func setDefaultPeriod(s *analysisv1alpha1.CompletionStrategy) {
	if s != nil && s.CompletionStrategyType == analysisv1alpha1.CompletionStrategyPeriodical && (s.PeriodSeconds == nil || *s.PeriodSeconds == 0) {
		s.PeriodSeconds = new(int64(secondsPerDay))
	}
}
