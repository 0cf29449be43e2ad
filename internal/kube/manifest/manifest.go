// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest reads Kubernetes manifests and applies them as `kubectl apply --server-side` does. It is independent of
// particular kinds.
package manifest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// Parse reads a stream of YAML documents. Empty documents are skipped; one without kind or apiVersion is an error.
func Parse(r io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}

		var content map[string]any
		if err := yaml.UnmarshalStrict(doc, &content); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}

		if len(content) == 0 {
			continue // comments, or nothing between two separators
		}

		u := &unstructured.Unstructured{Object: content}
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return nil, fmt.Errorf("document %d: wants apiVersion and kind", n)
		}

		objects = append(objects, u)
	}
}

// ParseString is Parse of a string.
func ParseString(text string) ([]*unstructured.Unstructured, error) {
	return Parse(strings.NewReader(text))
}

// ReadDir parses every *.yaml below dir, in the order of their names; kustomization files are left out.
func ReadDir(fsys fs.FS, dir string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(fsys, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".yaml" || path.Base(name) == "kustomization.yaml" {
			return err
		}

		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}

		parsed, err := Parse(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}

		objects = append(objects, parsed...)
		return nil
	})

	return objects, err
}

// Applier applies objects to one API server with one field manager.
type Applier struct {
	client  dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	manager string
}

// NewApplier returns an Applier whose field manager is manager.
func NewApplier(config *rest.Config, manager string) (*Applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}

	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}

	return &Applier{
		client:  client,
		mapper:  restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)),
		manager: manager,
	}, nil
}

// Apply applies the objects in order, namespaces and CRDs first, and waits after each CRD until it is served. Fields that the
// schema does not have are refused. Conflicts with other managers are overridden.
func (a *Applier) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	ordered := slices.Clone(objects)
	slices.SortStableFunc(ordered, func(x, y *unstructured.Unstructured) int { return applyOrder(x) - applyOrder(y) })

	for _, o := range ordered {
		if err := a.applyOne(ctx, o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), err)
		}
	}

	return nil
}

func applyOrder(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return 0
	case "Namespace":
		return 1
	default:
		return 2
	}
}

func (a *Applier) applyOne(ctx context.Context, o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()
	mapping, err := a.mapping(gvk)
	if err != nil {
		return err
	}

	var client dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := o.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}

		client = a.client.Resource(mapping.Resource).Namespace(namespace)
	}

	content, err := o.MarshalJSON()
	if err != nil {
		return err
	}

	// Force takes over the fields of other managers.
	if _, err := client.Patch(ctx, o.GetName(), applyPatch, content, metav1.PatchOptions{
		FieldManager: a.manager, Force: new(true), FieldValidation: metav1.FieldValidationStrict,
	}); err != nil {
		return err
	}

	if gvk.Kind == "CustomResourceDefinition" {
		return a.waitServed(ctx, client, o.GetName())
	}

	return nil
}

// mapping returns the REST mapping of a kind. It repeats the discovery for an unknown kind, whose CRD may have been applied a
// moment ago.
func (a *Applier) mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		a.mapper.Reset()
		mapping, err = a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}

	return mapping, err
}

const applyPatch = "application/apply-patch+yaml"

// waitServed waits until the kinds of a CRD can be discovered and listed. Discovery and the handler of its objects follow a
// moment after it is established.
func (a *Applier) waitServed(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		crd, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}

		if !isEstablished(crd) {
			return false, nil
		}

		for _, gvk := range servedKinds(crd) {
			if served, err := a.isServed(ctx, gvk); err != nil || !served {
				return false, err
			}
		}

		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until it is served: %w", err)
	}

	return nil
}

func isEstablished(crd *unstructured.Unstructured) bool {
	// Until the server has written them, conditions are null, which is no slice: not established yet.
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}

// servedKinds returns the served kinds of a CRD, one per version.
func servedKinds(crd *unstructured.Unstructured) []schema.GroupVersionKind {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var all []schema.GroupVersionKind
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok && m["served"] == true {
			version, _ := m["name"].(string)
			all = append(all, schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
		}
	}

	return all
}

// isServed reports whether discovery has a kind and its objects can be listed. A forbidden request counts as an answer.
func (a *Applier) isServed(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	mapping, err := a.mapping(gvk)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	_, err = a.client.Resource(mapping.Resource).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return false, nil
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return false, fmt.Errorf("listing %s: %w", mapping.Resource.Resource, err)
	}

	return true, nil
}
