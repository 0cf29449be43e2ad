// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package directapiservice leads the Service and the APIServices of the metric adapter to a port of this machine, for an API server that
// reaches no pods: that of the playground and of tests.
package directapiservice

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// name of the adapter's Service.
const name = "metric-adapter"

// Is tells whether an object is one of those that Objects changes.
func Is(o *unstructured.Unstructured) bool {
	return o.GetKind() == "APIService" || o.GetKind() == "Service" && o.GetName() == name
}

// Objects returns changed copies of the adapter's Service and of its APIServices among objects.
func Objects(objects []*unstructured.Unstructured, port int) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, o := range objects {
		switch {
		case o.GetKind() == "Service" && o.GetName() == name:
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
		return nil, fmt.Errorf("config holds no Service %s with APIServices", name)
	}
	return out, nil
}
