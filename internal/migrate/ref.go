// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object is an object of any kind.
type Object = unstructured.Unstructured

// Ref identifies an object.
type Ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// RefOf returns the reference of an object.
func RefOf(o *Object) Ref {
	return Ref{
		APIVersion: o.GetAPIVersion(),
		Kind:       o.GetKind(),
		Namespace:  o.GetNamespace(),
		Name:       o.GetName(),
	}
}

func (r Ref) String() string {
	return r.Kind + " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
}

func (r Ref) key() client.ObjectKey { return client.ObjectKey{Namespace: r.Namespace, Name: r.Name} }

// group returns the API group; empty for the core group.
func (r Ref) group() string { return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group }

// empty returns an object of the kind of r without content, to read into.
func (r Ref) empty() *Object {
	o := &Object{}
	o.SetAPIVersion(r.APIVersion)
	o.SetKind(r.Kind)

	return o
}

// namespacedRef, and the following, shorten tables of objects.
func namespacedRef(apiVersion, kind, namespace, name string) Ref {
	return Ref{
		APIVersion: apiVersion,
		Kind:       kind,
		Namespace:  namespace,
		Name:       name,
	}
}

func serviceRef(namespace, name string) Ref { return namespacedRef("v1", "Service", namespace, name) }

// stringAt returns a string field; empty if there is none.
func stringAt(o *Object, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// mapsAt returns the maps in a list field.
func mapsAt(o *Object, path ...string) []map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, path...)
	var out []map[string]any
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}

	return out
}

// stringMapAt returns a field with string values; nil if there is none.
func stringMapAt(o *Object, path ...string) map[string]string {
	m, _, _ := unstructured.NestedStringMap(o.Object, path...)
	return m
}
