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
		// Manifests of rules often contain other kinds, such as Namespaces.
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
	var object T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &object, true); err != nil {
		return list, fmt.Errorf("bad object: %w", err)
	}

	if slices.ContainsFunc(list, func(t T) bool { return name(&t) == o.GetName() }) {
		return list, errors.New("is there twice")
	}

	return append(list, object), nil
}

// checkRule validates a rule as the API server does. Rules of a file, or stored before the schema, were not validated, and guessing their
// meaning, such as that of a misspelled Preview, could evict pods.
func checkRule(r *ensurancev1alpha1.Rule) error {
	switch r.Strategy {
	case "", ensurancev1alpha1.AvoidanceActionStrategyNone, ensurancev1alpha1.AvoidanceActionStrategyPreview:
	default:
		return fmt.Errorf("strategy: %q: must be %s or %s", r.Strategy, ensurancev1alpha1.AvoidanceActionStrategyNone, ensurancev1alpha1.AvoidanceActionStrategyPreview)
	}

	if n := r.AvoidanceThreshold; n != nil && *n < 1 {
		return fmt.Errorf("avoidanceThreshold: %d: must be at least 1", *n)
	}

	if n := r.RestoreThreshold; n != nil && *n < 1 {
		return fmt.Errorf("restoreThreshold: %d: must be at least 1", *n)
	}

	return nil
}

// checkAction validates an AvoidanceAction as the API server does.
func checkAction(a *ensurancev1alpha1.AvoidanceActionSpec) error {
	if n := a.CoolDownSeconds; n != nil && *n < 1 {
		return fmt.Errorf("coolDownSeconds: %d: must be at least 1", *n)
	}

	if a.Throttle != nil && a.Throttle.CPUThrottle != nil {
		t := a.Throttle.CPUThrottle
		if t.MinCPURatio < 0 || t.MinCPURatio > 100 {
			return fmt.Errorf("throttle.cpuThrottle.minCPURatio: %d: must be from 0 to 100", t.MinCPURatio)
		}
		if t.StepCPURatio < 0 || t.StepCPURatio > 100 {
			return fmt.Errorf("throttle.cpuThrottle.stepCPURatio: %d: must be from 0 to 100", t.StepCPURatio)
		}
	}

	if a.Eviction != nil && a.Eviction.TerminationGracePeriodSeconds != nil && *a.Eviction.TerminationGracePeriodSeconds < 0 {
		return fmt.Errorf("eviction.terminationGracePeriodSeconds: %d: must be at least 0", *a.Eviction.TerminationGracePeriodSeconds)
	}

	return nil
}
