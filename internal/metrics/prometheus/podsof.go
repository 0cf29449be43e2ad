// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import "regexp"

// PodMatchers are conditions that select the pods of a workload by their names, for expressions that cannot ask who owns a pod.
// Pods of another workload whose names look alike are selected too; of kinds that Kubernetes does not have, all pods whose
// names begin with the workload's are.
func PodMatchers(namespace, kind, name string) []Matcher {
	pattern, known := podNamePattern(kind, []string{name})
	if !known {
		pattern = regexp.QuoteMeta(name) + "-.*"
	}
	return []Matcher{{Label: "namespace", Op: "=", Value: namespace}, {Label: "pod", Op: "=~", Value: pattern}}
}
