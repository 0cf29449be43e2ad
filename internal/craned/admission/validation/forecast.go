// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/util/validation/field"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/metrics/promscope"
	predictioncontroller "crane.io/crane/internal/prediction/controller"
	"crane.io/crane/pkg/forecast/registry"
)

// validateExpression warns of PromQL that Prometheus would refuse, or that returns no instant vector. It is no error, because the
// source of history may have another language or extend PromQL.
func validateExpression(text string, path *field.Path) Result {
	var v Result
	if len(text) > promscope.MaxExpression {
		v.warnf(path, "is longer than %d bytes and was not read", promscope.MaxExpression)
		return v
	}

	expr, err := promscope.Parse(text, true)
	switch {
	case err != nil:
		v.warnf(path, "Prometheus could not read this: %v", err)
	case expr.Type() != parser.ValueTypeVector:
		v.warnf(path, "gives a %s; only an instant vector can be forecast", parser.DocumentedType(expr.Type()))
	}

	return v
}

// validateAlgorithm validates the settings of the selected forecaster and warns of those of others.
func validateAlgorithm(a predictionv1alpha1.Algorithm, path *field.Path) Result {
	var v Result
	if _, err := registry.New(string(a.AlgorithmType), predictioncontroller.OptionsOf(a)); err != nil {
		settings := path
		if a.AlgorithmType != "" {
			settings = path.Child(string(a.AlgorithmType))
		}

		v.addErrors(field.Invalid(settings, string(a.AlgorithmType), err.Error()))
	}

	if a.DSP != nil && a.AlgorithmType != predictionv1alpha1.AlgorithmTypeDSP {
		v.warnf(path.Child("dsp"), "has no effect: the algorithm is %s", algorithmName(a))
	}
	if a.Percentile != nil && a.AlgorithmType != predictionv1alpha1.AlgorithmTypePercentile {
		v.warnf(path.Child("percentile"), "has no effect: the algorithm is %s", algorithmName(a))
	}

	return v
}

func algorithmName(a predictionv1alpha1.Algorithm) string {
	if a.AlgorithmType == "" {
		return registry.Auto
	}

	return string(a.AlgorithmType)
}
