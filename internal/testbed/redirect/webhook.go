// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redirect changes manifests of config/ so that the API server calls webhooks and aggregated APIs at ports of
// this machine instead of through Services, which the API server of the playground and of tests cannot reach.
package redirect

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
