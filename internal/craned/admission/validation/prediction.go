// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	predictioncontroller "crane.io/crane/internal/prediction/controller"
)

const kindNode = "Node"

// ValidateTimeSeriesPrediction validates a TimeSeriesPrediction.
func ValidateTimeSeriesPrediction(p *predictionv1alpha1.TimeSeriesPrediction, _ Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	if ref := p.Spec.TargetRef; ref != nil {
		v.addErrors(validateAPIVersion(ref.APIVersion, spec.Child("targetRef", "apiVersion"))...)
		if ref.Namespace != "" && strings.EqualFold(ref.Kind, kindNode) {
			v.warnf(spec.Child("targetRef", "namespace"), "has no effect: a Node has no namespace")
		}
	}

	kind := ""
	if p.Spec.TargetRef != nil {
		kind = p.Spec.TargetRef.Kind
	}

	v.merge(validatePredictionSpec(&p.Spec, kind, spec))
	return v
}

// validatePredictionSpec validates the window and the metrics of a prediction for a target of a kind.
func validatePredictionSpec(s *predictionv1alpha1.TimeSeriesPredictionSpec, kind string, spec *field.Path) Result {
	var v Result
	v.warnShortWindow(s.PredictionWindowSeconds, spec.Child("predictionWindowSeconds"))

	metrics := s.PredictionMetrics
	for i := range metrics {
		m := &metrics[i]
		path := spec.Child("predictionMetrics").Index(i)
		switch m.Type {
		case predictionv1alpha1.ResourceQueryMetricType:
			if kind == "" {
				v.addErrors(field.Required(spec.Child("targetRef", "kind"), "a resourceQuery needs the kind of the target"))
			}

		case predictionv1alpha1.MetricQueryMetricType:
			v.merge(validateMetricQuery(m.MetricQuery, path.Child("metricQuery")))

		case predictionv1alpha1.ExpressionQueryMetricType:
			if e := m.ExpressionQuery; e != nil && strings.TrimSpace(e.Expression) == "" {
				v.addErrors(field.Required(path.Child("expressionQuery", "expression"), "the expression is empty"))
			} else if e != nil {
				v.merge(validateExpression(e.Expression, path.Child("expressionQuery", "expression")))
			}
		}

		// A query of another type than the declared one is stored and never read.
		for _, q := range []struct {
			name string
			set  bool
			kind predictionv1alpha1.MetricType
		}{
			{"resourceQuery", m.ResourceQuery != nil, predictionv1alpha1.ResourceQueryMetricType},
			{"metricQuery", m.MetricQuery != nil, predictionv1alpha1.MetricQueryMetricType},
			{"expressionQuery", m.ExpressionQuery != nil, predictionv1alpha1.ExpressionQueryMetricType},
		} {
			if q.set && q.kind != m.Type {
				v.warnf(path.Child(q.name), "has no effect: the type is %s", m.Type)
			}
		}

		v.merge(validateAlgorithm(m.Algorithm, path.Child("algorithm")))
	}

	return v
}

func validateMetricQuery(q *predictionv1alpha1.MetricQuery, path *field.Path) Result {
	var v Result
	if q == nil {
		return v // The schema has refused it.
	}

	for i, c := range q.QueryConditions {
		if _, err := predictioncontroller.MatcherOf(c); err != nil {
			v.addErrors(field.Invalid(path.Child("labels").Index(i), c.Key, err.Error()))
		}
	}

	return v
}

// ValidateClusterNodePrediction validates a template of predictions.
func ValidateClusterNodePrediction(p *predictionv1alpha1.ClusterNodePrediction, _ Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	v.addErrors(metav1validation.ValidateLabels(p.Spec.NodeSelector, spec.Child("nodeSelector"))...)

	template := spec.Child("template")
	if p.Spec.Template == nil {
		v.warnf(template, "is not set: nothing is forecast")
		return v
	}

	if p.Spec.Template.Spec.TargetRef != nil {
		v.warnf(template.Child("spec", "targetRef"), "has no effect: each prediction is for its node")
	}

	v.merge(validatePredictionSpec(&p.Spec.Template.Spec, kindNode, template.Child("spec")))
	return v
}

// DefaultTimeSeriesPrediction sets the API version and the namespace of the target if they are unambiguous.
func DefaultTimeSeriesPrediction(p *predictionv1alpha1.TimeSeriesPrediction) {
	ref := p.Spec.TargetRef
	setDefaultAPIVersion(ref)

	if ref != nil && ref.Namespace == "" && defaultAPIVersion(ref.Kind) != "" && ref.Kind != kindNode {
		ref.Namespace = p.Namespace
	}
}

func (v *Result) warnShortWindow(seconds int32, path *field.Path) {
	if seconds < predictionv1alpha1.MinPredictionWindowSeconds {
		v.warnf(path, "%d counts as %d, the shortest window", seconds, predictionv1alpha1.MinPredictionWindowSeconds)
	}
}
