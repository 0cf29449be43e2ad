// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/kube/manifest"
)

// Parse reads a stream of YAML documents with NodeQOS, PodQOS, AvoidanceAction and lists of them. Unknown fields, other kinds and
// duplicate names are errors that name the object; other API groups are skipped, since manifests often contain more.
func Parse(content []byte) (Set, error) {
	objects, err := manifest.Parse(bytes.NewReader(content))
	if err != nil {
		return Set{}, fmt.Errorf("rules: %w", err)
	}
	var set Set
	for _, o := range flattenLists(objects) {
		gvk := o.GroupVersionKind()
		if gvk.Group != ensurancev1alpha1.GroupName {
			continue
		}
		name := fmt.Sprintf("%s %s", gvk.Kind, o.GetName())
		if gvk.Version != ensurancev1alpha1.GroupVersion.Version {
			return Set{}, fmt.Errorf("rules: %s: apiVersion is %s, want %s", name, o.GetAPIVersion(), ensurancev1alpha1.GroupVersion)
		}
		if err := set.add(o); err != nil {
			return Set{}, fmt.Errorf("rules: %s: %w", name, err)
		}
	}
	if len(set.NodeQOS) == 0 {
		return Set{}, errors.New("rules: no NodeQOS")
	}
	return set, nil
}

// flattenLists replaces lists, as printed by kubectl get, by their items.
func flattenLists(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range objects {
		list, ok := o.Object["items"].([]any)
		if !ok || !strings.HasSuffix(o.GetKind(), "List") {
			out = append(out, o)
			continue
		}
		for _, item := range list {
			content, _ := item.(map[string]any)
			out = append(out, &unstructured.Unstructured{Object: content})
		}
	}
	return out
}

func (s *Set) add(o *unstructured.Unstructured) error {
	if o.GetName() == "" {
		return errors.New("has no name")
	}
	var err error
	switch o.GetKind() {
	case "NodeQOS":
		s.NodeQOS, err = decode(s.NodeQOS, o, func(q *ensurancev1alpha1.NodeQOS) string { return q.Name })
	case "PodQOS":
		s.PodQOS, err = decode(s.PodQOS, o, func(q *ensurancev1alpha1.PodQOS) string { return q.Name })
	case "AvoidanceAction":
		s.Actions, err = decode(s.Actions, o, func(a *ensurancev1alpha1.AvoidanceAction) string { return a.Name })
	default:
		err = errors.New("unknown kind")
	}
	return err
}

func decode[T any](list []T, o *unstructured.Unstructured, name func(*T) string) ([]T, error) {
	var made T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &made, true); err != nil {
		return list, fmt.Errorf("bad object: %w", err)
	}
	if slices.ContainsFunc(list, func(t T) bool { return name(&t) == o.GetName() }) {
		return list, errors.New("is there twice")
	}
	return append(list, made), nil
}
