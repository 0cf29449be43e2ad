// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api tests the schemas in config/crd against a real API server: what uses every field is accepted and comes back
// as it was sent, what is wrong is refused with the path of the field, what gocrane's users have applies unchanged. It
// knows nothing of the controllers.
package api

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/controlplanetest"
)

// namespace holds the namespaced objects of all tests; what each test makes has names of its own.
const namespace = "fixtures"

var (
	plane  *controlplane.ControlPlane
	client dynamic.Interface
)

var (
	crdResource       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

func TestMain(m *testing.M) {
	os.Exit(controlplanetest.ForMain(prepared{m}, controlplane.Options{}, func(c *controlplane.ControlPlane) { plane = c }))
}

// prepared installs the schemas before the tests run.
type prepared struct{ tests controlplanetest.Runner }

func (p prepared) Run() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	if err := prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return p.tests.Run()
}

func prepare(ctx context.Context) error {
	var err error
	configuration := plane.Config()
	configuration.WarningHandler = rest.NoWarnings{}
	if client, err = dynamic.NewForConfig(configuration); err != nil {
		return err
	}

	crds, err := definitions()
	if err != nil {
		return err
	}

	if err := store(ctx, crds); err != nil {
		return err
	}

	for _, crd := range crds {
		if _, err := client.Resource(crdResource).Apply(ctx, crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "install"}); err != nil {
			return fmt.Errorf("install %s: %w", crd.GetName(), err)
		}
	}

	for _, crd := range crds {
		if err := served(ctx, crd); err != nil {
			return fmt.Errorf("wait for %s: %w", crd.GetName(), err)
		}
	}

	if err := tightened(ctx); err != nil {
		return err
	}

	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}

	if _, err = client.Resource(namespaceResource).Create(ctx, ns, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return nil
	}

	return err
}

// served waits until the kind of a definition can be listed.
func served(ctx context.Context, crd *unstructured.Unstructured) error {
	resource := resourceOf(crd)
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}

		return err == nil, nil
	})
}

// apply writes an object as kubectl apply --server-side --validate=strict does.
func apply(ctx context.Context, object *unstructured.Unstructured, subresources ...string) (*unstructured.Unstructured, error) {
	data, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}

	force := true
	options := metav1.PatchOptions{FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict}
	return on(object).Patch(ctx, object.GetName(), types.ApplyPatchType, data, options, subresources...)
}

// on is the interface for the kind and namespace of an object.
func on(object *unstructured.Unstructured) dynamic.ResourceInterface {
	kind, ok := kinds()[object.GroupVersionKind()]
	if !ok {
		panic("no schema for " + object.GroupVersionKind().String())
	}

	if !kind.namespaced {
		return client.Resource(kind.resource)
	}

	return client.Resource(kind.resource).Namespace(object.GetNamespace())
}
