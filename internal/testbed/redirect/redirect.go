// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redirect changes manifests of config/ so that the API server calls webhooks and aggregated APIs at ports of
// this machine instead of through Services, which the API server of the playground and of tests cannot reach.
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

// IsWebhookConfiguration reports whether an object is a validating or mutating webhook configuration.
func IsWebhookConfiguration(o *unstructured.Unstructured) bool {
	return o.GetKind() == "ValidatingWebhookConfiguration" || o.GetKind() == "MutatingWebhookConfiguration"
}

// WebhookConfiguration returns a copy of a webhook configuration whose webhooks are called at address, as host:port,
// with the same paths.
func WebhookConfiguration(o *unstructured.Unstructured, address string) (*unstructured.Unstructured, error) {
	out := o.DeepCopy()
	webhooks, _, err := unstructured.NestedSlice(out.Object, "webhooks")
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}

	for i, w := range webhooks {
		entry, ok := w.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s %s: webhooks[%d] is not an object", o.GetKind(), o.GetName(), i)
		}

		path, found, err := unstructured.NestedString(entry, "clientConfig", "service", "path")
		if err != nil || !found {
			return nil, fmt.Errorf("%s %s: webhooks[%d] has no clientConfig.service.path", o.GetKind(), o.GetName(), i)
		}

		entry["clientConfig"] = map[string]any{"url": "https://" + address + path}
	}

	if err := unstructured.SetNestedSlice(out.Object, webhooks, "webhooks"); err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}

	return out, nil
}
