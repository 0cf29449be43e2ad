// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

const (
	// nextGroup has copies of the definitions, so that other tests keep theirs.
	nextGroup              = "next.test"
	oldVersion, newVersion = "v1alpha1", "v1beta1"
	// servedWithin bounds the time until a changed definition is in force.
	servedWithin = time.Minute
)

// nextKind is a copy of a kind in nextGroup.
type nextKind struct {
	crd        *unstructured.Unstructured
	namespaced bool
}

// TestPathToTheNextVersion carries out the steps of docs/reference/api-versions.md for each kind, with a second version of the same schema: both
// versions are served, the new one is stored, stored objects are written again, and the old version is removed.
func TestPathToTheNextVersion(t *testing.T) {
	for gvk, kind := range kinds() {
		t.Run(gvk.Kind, func(t *testing.T) {
			t.Parallel()

			k := nextKind{nextDefinition(t, kind.resource), kind.namespaced}
			t.Cleanup(func() {
				if err := client.Resource(crdResource).Delete(context.WithoutCancel(t.Context()), k.crd.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})

			k.install(t, oldVersion, oldVersion)
			var objects []*unstructured.Unstructured
			for _, o := range fixtures(t) {
				if o.GroupVersionKind() == gvk {
					objects = append(objects, k.create(t, o, kind.status))
				}
			}

			if len(objects) == 0 {
				t.Fatal("no fixture, want at least one")
			}

			k.install(t, oldVersion, oldVersion, newVersion)
			k.install(t, newVersion, oldVersion, newVersion)

			if err := k.tryInstall(t, newVersion, newVersion); err == nil {
				t.Error("the old version was removed while objects of it are stored, want an error")
			}

			for _, o := range objects {
				k.rewrite(t, o)
			}

			stored := []byte(`{"status":{"storedVersions":["` + newVersion + `"]}}`)
			if _, err := client.Resource(crdResource).Patch(t.Context(), k.crd.GetName(), types.MergePatchType, stored, metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}

			k.install(t, newVersion, newVersion)
			for _, o := range objects {
				have, err := k.on(o, newVersion).Get(t.Context(), o.GetName(), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}

				o.SetAPIVersion(have.GetAPIVersion())
				if diff := cmp.Diff(content(o), content(have)); diff != "" {
					t.Errorf("%s (-before +after), want no change:\n%s", o.GetName(), diff)
				}
			}
		})
	}
}

// nextDefinition returns a copy of a definition in nextGroup.
func nextDefinition(t *testing.T, resource schema.GroupVersionResource) *unstructured.Unstructured {
	t.Helper()

	crds, err := definitions()
	if err != nil {
		t.Fatal(err)
	}

	for _, crd := range crds {
		if resourceOf(crd) == resource {
			crd.SetName(resource.Resource + "." + nextGroup)
			_ = unstructured.SetNestedField(crd.Object, nextGroup, "spec", "group")
			return crd
		}
	}

	t.Fatalf("no definition of %s, want one", resource)
	return nil
}

// install applies the definition with versions, one of which is stored, and waits until all of them are served.
func (k nextKind) install(t *testing.T, stored string, versions ...string) {
	t.Helper()

	if err := k.tryInstall(t, stored, versions...); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), servedWithin)
	defer cancel()

	for _, version := range versions {
		crd := k.crd.DeepCopy()
		first := versionOf(crd)
		first["name"] = version
		_ = unstructured.SetNestedSlice(crd.Object, []any{first}, "spec", "versions")

		if err := served(ctx, crd); err != nil {
			t.Fatalf("serving version %s of %s: %v", version, crd.GetName(), err)
		}
	}
}

func (k nextKind) tryInstall(t *testing.T, stored string, versions ...string) error {
	t.Helper()

	crd := k.crd.DeepCopy()
	list := make([]any, len(versions))
	for i, name := range versions {
		version := versionOf(crd)
		version["name"] = name
		version["storage"] = name == stored
		list[i] = version
	}

	if err := unstructured.SetNestedSlice(crd.Object, list, "spec", "versions"); err != nil {
		t.Fatal(err)
	}

	_, err := client.Resource(crdResource).Apply(t.Context(), crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "install", Force: true})
	return err
}

// create stores a copy of an object, with its status if the kind has one, and returns what is stored.
func (k nextKind) create(t *testing.T, o *unstructured.Unstructured, status bool) *unstructured.Unstructured {
	t.Helper()

	sent := o.DeepCopy()
	sent.SetAPIVersion(nextGroup + "/" + oldVersion)

	stored, err := k.on(sent, oldVersion).Create(t.Context(), sent, metav1.CreateOptions{})
	if err == nil && status {
		stored.Object["status"] = sent.Object["status"]
		stored, err = k.on(sent, oldVersion).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{})
	}

	if err != nil {
		t.Fatal(err)
	}

	return stored
}

// rewrite reads an object in the new version and writes it unchanged, as kubectl replace does, until the API server, which replaces its storage
// after the definition, stores it again.
func (k nextKind) rewrite(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), servedWithin)
	defer cancel()

	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		read, err := k.on(o, newVersion).Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}

		written, err := k.on(o, newVersion).Update(ctx, read, metav1.UpdateOptions{})
		return err == nil && written.GetResourceVersion() != read.GetResourceVersion(), err
	})
	if err != nil {
		t.Fatalf("storing %s again: %v", o.GetName(), err)
	}
}

// on returns the interface for a version in the namespace of an object.
func (k nextKind) on(o *unstructured.Unstructured, version string) dynamic.ResourceInterface {
	resource := resourceOf(k.crd)
	resource.Version = version
	if !k.namespaced {
		return client.Resource(resource)
	}

	return client.Resource(resource).Namespace(o.GetNamespace())
}
