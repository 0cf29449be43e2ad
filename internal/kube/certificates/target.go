// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Target is a cluster-scoped object with a bundle of authorities for the API server. A target that does not exist is ignored. It
// needs the rights get, list, watch and patch on its name.
type Target struct {
	resource schema.GroupVersionResource
	name     string
	// service is the namespace and the name of the Service of an APIService that the component answers; one of another Service is left alone.
	service [2]string
}

// The kinds of targets.
const (
	admissionGroup   = "admissionregistration.k8s.io"
	aggregationGroup = "apiregistration.k8s.io"
)

// ValidatingWebhooks are the webhooks of a ValidatingWebhookConfiguration.
func ValidatingWebhooks(name string) Target {
	return Target{resource: schema.GroupVersionResource{Group: admissionGroup, Version: "v1", Resource: "validatingwebhookconfigurations"}, name: name}
}

// MutatingWebhooks are the webhooks of a MutatingWebhookConfiguration.
func MutatingWebhooks(name string) Target {
	return Target{resource: schema.GroupVersionResource{Group: admissionGroup, Version: "v1", Resource: "mutatingwebhookconfigurations"}, name: name}
}

// APIService is an aggregated API, named <version>.<group>, if it is answered by a Service.
func APIService(name, serviceNamespace, service string) Target {
	return Target{
		resource: schema.GroupVersionResource{Group: aggregationGroup, Version: "v1", Resource: "apiservices"}, name: name, service: [2]string{serviceNamespace, service},
	}
}

func (t Target) String() string { return t.resource.Resource + "/" + t.name }

// operation is one JSON patch operation (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patch returns the operations that write the bundle into the object; none if it has it.
func (t Target) patch(o *unstructured.Unstructured, bundle []byte) ([]operation, error) {
	var ops []operation
	text := base64.StdEncoding.EncodeToString(bundle)
	put := func(path string, clientConfig map[string]any) {
		if current, _ := clientConfig["caBundle"].(string); !sameBundle(current, bundle) {
			ops = append(ops, operation{"add", path + "/caBundle", text})
		}
	}

	if t.resource.Group == aggregationGroup {
		spec, _, err := unstructured.NestedMap(o.Object, "spec")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}

		// Another adapter answers it, such as KEDA's, or gocrane's during a migration.
		service, _ := spec["service"].(map[string]any)
		if service["namespace"] != t.service[0] || service["name"] != t.service[1] {
			return nil, nil
		}

		// insecureSkipTLSVerify and a bundle exclude each other.
		if blind, _ := spec["insecureSkipTLSVerify"].(bool); blind {
			ops = append(ops, operation{"add", "/spec/insecureSkipTLSVerify", false})
		}

		put("/spec", spec)
		return ops, nil
	}

	webhooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}

	for i, w := range webhooks {
		entry, _ := w.(map[string]any)
		clientConfig, _ := entry["clientConfig"].(map[string]any)
		if clientConfig == nil {
			return nil, fmt.Errorf("%s: webhooks[%d] has no clientConfig", t, i)
		}

		put("/webhooks/"+strconv.Itoa(i)+"/clientConfig", clientConfig)
	}

	return ops, nil
}

// sameBundle compares the base64 bundle of an object with a bundle.
func sameBundle(text string, bundle []byte) bool {
	current, err := base64.StdEncoding.DecodeString(text)
	return err == nil && bytes.Equal(current, bundle)
}

// apply patches the observed version of the object.
func (t Target) apply(ctx context.Context, client dynamic.Interface, manager string, o *unstructured.Unstructured, ops []operation) error {
	ops = append([]operation{
		{"test", "/metadata/uid", string(o.GetUID())}, {"test", "/metadata/resourceVersion", o.GetResourceVersion()},
	}, ops...)

	body, err := json.Marshal(ops)
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}

	_, err = client.Resource(t.resource).Patch(ctx, t.name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: manager})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// A test of the patch failed: the object has changed and its event will arrive.
		return fmt.Errorf("%s changed meanwhile: %w", t, err)
	}

	return fmt.Errorf("writing the bundle of %s: %w", t, err)
}
