// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	model "crane.io/crane/pkg/elastic"
)

// expected is what is known of the node's TimeSeriesPrediction.
type expected struct {
	// tsp is nil where there is none.
	tsp *predictionv1alpha1.TimeSeriesPrediction
	// wanted tells that somebody has asked for forecasts: there is a template, or an object.
	wanted bool
	// why says why there is no forecast that is wanted.
	why string
}

// forecastOf is the forecast of a resource as the policy wants it. Without a metric for it in the object nobody has asked.
func forecastOf[T model.Amount](e expected, node *corev1.Node, name corev1.ResourceName, now time.Time, amount func(float64) (T, error)) model.Forecast[T] {
	if e.tsp == nil {
		return model.Forecast[T]{Wanted: e.wanted, Why: e.why}
	}
	identifier, ok := identifierOf(&e.tsp.Spec, name)
	if !ok {
		return model.Forecast[T]{}
	}
	out := model.Forecast[T]{Wanted: true}
	if !isAbout(e.tsp.Spec.TargetRef, node) {
		out.Why = fmt.Sprintf("TimeSeriesPrediction %s is not about this node", e.tsp.Name)
		return out
	}
	f, err := scalingmetric.Highest(e.tsp, identifier, now)
	if err == nil {
		out.Peak, err = amount(f.Value)
	}
	if err != nil {
		out.Why = err.Error()
		return out
	}
	out.OK, out.Until, out.Why = true, f.Until, f.Why
	return out
}

// identifierOf finds the metric that is about a resource: by its resourceQuery, else by its name, which is cpu, memory, resource.cpu or
// resource.memory. Expressions are in cores and in bytes.
func identifierOf(spec *predictionv1alpha1.TimeSeriesPredictionSpec, name corev1.ResourceName) (string, bool) {
	for i := range spec.PredictionMetrics {
		m := &spec.PredictionMetrics[i]
		if m.Type == predictionv1alpha1.ResourceQueryMetricType {
			if m.ResourceQuery != nil && *m.ResourceQuery == name {
				return m.ResourceIdentifier, true
			}
			continue
		}
		if slices.Contains([]string{string(name), "resource." + string(name)}, m.ResourceIdentifier) {
			return m.ResourceIdentifier, true
		}
	}
	return "", false
}

// isAbout tells whether a target is the node, by its name or, as in gocrane, one of its addresses.
func isAbout(target *corev1.ObjectReference, node *corev1.Node) bool {
	if target == nil || !strings.EqualFold(target.Kind, kindNode) {
		return false
	}
	return target.Name == node.Name || slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == target.Name })
}
