// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// validateLabelSelector checks what the API server would refuse in a selector of its own.
func validateLabelSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// validateAPIVersion checks the form of a group and version; empty is valid.
func validateAPIVersion(text string, path *field.Path) field.ErrorList {
	if _, err := schema.ParseGroupVersion(text); err != nil {
		return field.ErrorList{field.Invalid(path, text, "must be a group and a version such as apps/v1, or v1")}
	}

	return nil
}

// isClusterScoped reports whether a selector selects built-in objects without a namespace.
func isClusterScoped(s analysisv1alpha1.ResourceSelector) bool {
	return workload.IsClusterScoped(schema.GroupKind{Group: workload.GroupOf(s.APIVersion, s.Kind), Kind: s.Kind})
}

// duplicates returns the indices of values that occur earlier in the list.
func duplicates[T any](list []T, key func(T) string) []int {
	seen := map[string]bool{}
	var out []int
	for i, v := range list {
		k := key(v)
		if seen[k] {
			out = append(out, i)
		}

		seen[k] = true
	}

	return out
}

func identity(s string) string { return s }

// defaultAPIVersion returns the API version of a kind that is unambiguous, or "".
func defaultAPIVersion(kind string) string {
	switch kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet":
		return "apps/v1"
	case "Job", "CronJob":
		return "batch/v1"
	case "Node", "Pod", "ReplicationController":
		return "v1"
	}

	return ""
}

// setDefaultAPIVersion sets the API version of a reference without one.
func setDefaultAPIVersion(ref *corev1.ObjectReference) {
	if ref != nil && ref.APIVersion == "" {
		ref.APIVersion = defaultAPIVersion(ref.Kind)
	}
}
