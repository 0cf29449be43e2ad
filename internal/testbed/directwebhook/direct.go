// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package directwebhook points webhook configurations at an address instead of a Service, for an API server that reaches no Service: that
// of the playground and of tests.
package directwebhook

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// IsConfiguration tells whether an object configures webhooks.
func IsConfiguration(o *unstructured.Unstructured) bool {
	return o.GetKind() == "ValidatingWebhookConfiguration" || o.GetKind() == "MutatingWebhookConfiguration"
}

// Configuration returns a copy of a webhook configuration whose webhooks are called at address, a host and a port, under the same
// paths.
func Configuration(o *unstructured.Unstructured, address string) (*unstructured.Unstructured, error) {
	out := o.DeepCopy()
	webhooks, _, err := unstructured.NestedSlice(out.Object, "webhooks")
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	for i, w := range webhooks {
		entry, ok := w.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s %s: webhooks[%d] is no object", o.GetKind(), o.GetName(), i)
		}
		path, found, err := unstructured.NestedString(entry, "clientConfig", "service", "path")
		if err != nil || !found {
			return nil, fmt.Errorf("%s %s: webhooks[%d] names no path of a service", o.GetKind(), o.GetName(), i)
		}
		entry["clientConfig"] = map[string]any{"url": "https://" + address + path}
	}
	if err := unstructured.SetNestedSlice(out.Object, webhooks, "webhooks"); err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return out, nil
}
