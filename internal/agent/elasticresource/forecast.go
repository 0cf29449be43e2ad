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

// forecastState is the node's TimeSeriesPrediction as last read.
type forecastState struct {
	// tsp is nil if there is none.
	tsp *predictionv1alpha1.TimeSeriesPrediction
	// requested means that a template or an object asks for forecasts.
	requested bool
	// reason says why a requested forecast is missing.
	reason string
}

// readForecast returns the peak forecast of a resource. Without a metric for the resource no forecast is requested.
func readForecast[T model.Amount](e forecastState, node *corev1.Node, name corev1.ResourceName, now time.Time, amount func(float64) (T, error)) model.Forecast[T] {
	if e.tsp == nil {
		return model.Forecast[T]{Requested: e.requested, Detail: e.reason}
	}
	identifier, ok := findIdentifier(&e.tsp.Spec, name)
	if !ok {
		return model.Forecast[T]{}
	}
	out := model.Forecast[T]{Requested: true}
	if !targetsNode(e.tsp.Spec.TargetRef, node) {
		out.Detail = fmt.Sprintf("TimeSeriesPrediction %s does not target this node", e.tsp.Name)
		return out
	}
	f, err := scalingmetric.PeakForecast(e.tsp, identifier, now)
	if err == nil {
		out.Peak, err = amount(f.Value)
	}
	if err != nil {
		out.Detail = err.Error()
		return out
	}
	out.OK, out.Until, out.Detail = true, f.ExpiresAt, f.Reason
	return out
}

// findIdentifier returns the metric of a resource: by its resourceQuery, else by its name (cpu, memory, resource.cpu or resource.memory).
// Expressions are in cores and in bytes.
func findIdentifier(spec *predictionv1alpha1.TimeSeriesPredictionSpec, name corev1.ResourceName) (string, bool) {
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

// targetsNode reports whether target is the node, by name or, as in gocrane, by one of its addresses.
func targetsNode(target *corev1.ObjectReference, node *corev1.Node) bool {
	if target == nil || !strings.EqualFold(target.Kind, kindNode) {
		return false
	}
	return target.Name == node.Name || slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == target.Name })
}
