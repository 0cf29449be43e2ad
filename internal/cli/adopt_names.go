// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/workloadname"
)

// suggestTarget returns the workloads whose names resemble a name, and for a known name its kinds.
func suggestTarget(all []analysisv1alpha1.Recommendation, kind, name string) string {
	var names, kinds []string
	for i := range all {
		if targetsnapshot.StateAnnotations()[all[i].Spec.Type] == "" {
			continue
		}

		target := all[i].Spec.TargetRef
		names = append(names, target.Name)

		if target.Name == name {
			kinds = append(kinds, strings.ToLower(target.Kind)+"/"+target.Name)
		}
	}

	if kind != "" && len(kinds) > 0 {
		slices.Sort(kinds)
		return "; did you mean " + strings.Join(slices.Compact(kinds), " or ") + "?"
	}

	return workloadname.DidYouMean(name, names)
}

// recommendationsNamed returns the Recommendation of a name, or else those of the workload NAME or KIND/NAME that can be adopted. It is an
// error if there are none, or if workloads of several kinds have the name.
func recommendationsNamed(all []analysisv1alpha1.Recommendation, name string) ([]analysisv1alpha1.Recommendation, error) {
	if i := slices.IndexFunc(all, func(r analysisv1alpha1.Recommendation) bool { return r.Name == name }); i >= 0 {
		return all[i : i+1 : i+1], nil
	}

	kind, workload, qualified := strings.Cut(name, "/")
	if !qualified {
		kind = ""
		workload = name
	}

	var out []analysisv1alpha1.Recommendation
	var kinds []string
	// A name that is no Recommendation is that of a workload, with its Recommendations of requests and replicas.
	for i := range all {
		target := all[i].Spec.TargetRef
		if target.Name != workload || kind != "" && !workloadname.KindMatches(kind, target.Kind) || targetsnapshot.StateAnnotations()[all[i].Spec.Type] == "" {
			continue
		}

		out = append(out, all[i])
		if qualifiedName := strings.ToLower(target.Kind) + "/" + target.Name; !slices.Contains(kinds, qualifiedName) {
			kinds = append(kinds, qualifiedName)
		}
	}

	switch {
	case len(out) == 0:
		return nil, fmt.Errorf("no recommendation %s, and none of requests or replicas for a workload of this name%s", name, suggestTarget(all, kind, workload))
	case len(kinds) > 1:
		return nil, fmt.Errorf("%s is the name of several workloads: use one of %s", name, strings.Join(kinds, ", "))
	}

	return out, nil
}
