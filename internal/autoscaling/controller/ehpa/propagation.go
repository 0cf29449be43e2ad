// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"maps"
	"slices"
	"strings"
)

// Propagation selects the labels and annotations of an EffectiveHorizontalPodAutoscaler that its HPA gets.
type Propagation struct {
	Labels, LabelPrefixes           []string
	Annotations, AnnotationPrefixes []string
}

func isPropagated(key string, names, prefixes []string) bool {
	return slices.Contains(names, key) || slices.ContainsFunc(prefixes, func(p string) bool { return p != "" && strings.HasPrefix(key, p) })
}

// mergedMetadata returns the labels or annotations of an object: the existing ones without those that are propagated, then the propagated
// ones of the owner, then those of the controller.
func mergedMetadata(current, owner map[string]string, names, prefixes []string, managed map[string]string) map[string]string {
	out := maps.Clone(current)
	if out == nil {
		out = map[string]string{}
	}

	maps.DeleteFunc(out, func(key, _ string) bool { return isPropagated(key, names, prefixes) })
	for key, value := range owner {
		if isPropagated(key, names, prefixes) {
			out[key] = value
		}
	}

	maps.Copy(out, managed)
	if len(out) == 0 {
		return nil
	}

	return out
}
