// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// covers reports whether a value has everything of a desired one: maps may have more keys, lists must have the same length.
func covers(now, desired any) bool {
	switch want := desired.(type) {
	case map[string]any:
		have, ok := now.(map[string]any)
		if !ok {
			return len(want) == 0 && now == nil
		}

		for key, value := range want {
			if !covers(have[key], value) {
				return false
			}
		}

		return true

	case []any:
		have, ok := now.([]any)
		if !ok || len(have) != len(want) {
			return len(want) == 0 && now == nil
		}

		for i := range want {
			if !covers(have[i], want[i]) {
				return false
			}
		}

		return true

	case nil:
		return now == nil
	}

	// The API server writes numbers in other forms and leaves out empty values.
	if a, ok := number(desired); ok {
		b, ok := number(now)
		return ok && a == b
	}

	if desired == "" || desired == false {
		return now == nil || now == desired
	}

	return now == desired
}

// number returns the value of a number of any type.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	case int:
		return float64(n), true
	}

	return 0, false
}

// sameContent reports whether two objects differ only in what a server sets, and in status.
func sameContent(a, b *Object) bool {
	return reflect.DeepEqual(content(a), content(b))
}

func content(o *Object) map[string]any {
	out := maps.Clone(stripped(o).Object)
	if hasStatusController(o) {
		delete(out, "status")
	}

	return out
}

// hasStatusController reports whether the status of a kind is set by others and cannot be restored with the object. gocrane stored the
// status of its kinds of analysis and ensurance as a part of the object.
func hasStatusController(o *Object) bool {
	switch RefOf(o).group() {
	case "analysis.crane.io", "ensurance.crane.io", "topology.crane.io":
		return false
	}

	return true
}

// sameSelector reports whether two workloads select the same pods.
func sameSelector(a, b *Object) bool {
	x, _, _ := unstructured.NestedMap(a.Object, "spec", "selector")
	y, _, _ := unstructured.NestedMap(b.Object, "spec", "selector")
	return reflect.DeepEqual(x, y)
}
