// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package redirect

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// metricAdapter is the name of the metric adapter's Service.
const metricAdapter = "metric-adapter"

// IsMetricAdapter reports whether an object is the metric adapter's Service or an APIService.
func IsMetricAdapter(o *unstructured.Unstructured) bool {
	return o.GetKind() == "APIService" || o.GetKind() == "Service" && o.GetName() == metricAdapter
}

// MetricAdapter returns copies of the adapter's Service and of its APIServices among objects that lead to a port of
// this machine.
func MetricAdapter(objects []*unstructured.Unstructured, port int) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, o := range objects {
		switch {
		case o.GetKind() == "Service" && o.GetName() == metricAdapter:
			service := o.DeepCopy()
			service.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
			out = append(out, service)
		case o.GetKind() == "APIService":
			aggregated := o.DeepCopy()
			if err := unstructured.SetNestedField(aggregated.Object, int64(port), "spec", "service", "port"); err != nil {
				return nil, fmt.Errorf("APIService %s: %w", o.GetName(), err)
			}
			out = append(out, aggregated)
		}
	}
	if len(out) < 2 {
		return nil, fmt.Errorf("config contains no Service %s with APIServices", metricAdapter)
	}
	return out, nil
}
