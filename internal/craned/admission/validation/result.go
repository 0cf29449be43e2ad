// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// Facts are what a verdict may depend on beside the object.
type Facts struct {
	// Namespace is Crane's own.
	Namespace string
	// Actions are the AvoidanceActions by name; nil where they are not known.
	Actions map[string]ensurancev1alpha1.AvoidanceActionSpec
	// ValidateRecommender says why a recommender could not run with the settings in force; nil where these are not known.
	ValidateRecommender func(analysisv1alpha1.Recommender) error
}

// Result is what a look at an object found.
type Result struct {
	// Errors refuse the object.
	Errors field.ErrorList
	// Warnings are sentences that begin with the path of the field.
	Warnings []string
}

func (v *Result) addErrors(errs ...*field.Error) { v.Errors = append(v.Errors, errs...) }

func (v *Result) warnf(path *field.Path, format string, args ...any) {
	v.Warnings = append(v.Warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

// merge takes over what another look found.
func (v *Result) merge(other Result) {
	v.Errors = append(v.Errors, other.Errors...)
	v.Warnings = append(v.Warnings, other.Warnings...)
}

var indices = regexp.MustCompile(`\[[0-9]+\]`)

// errorKey is an error without its place in a list, which moves when the list changes before it.
func errorKey(e *field.Error) string {
	return fmt.Sprintf("%s|%s|%v|%s", e.Type, indices.ReplaceAllString(e.Field, "[]"), e.BadValue, e.Detail)
}

// Ratchet is the verdict on an update: what was wrong before and still is does not block it, but is warned of. So an object that
// was stored while no webhook looked, or before there was a rule, can still be labelled, finalised and mended step by step.
func Ratchet(before, after Result) Result {
	known := map[string]int{}
	for _, e := range before.Errors {
		known[errorKey(e)]++
	}
	out := Result{Warnings: slices.Clone(after.Warnings)}
	for _, e := range after.Errors {
		if f := errorKey(e); known[f] > 0 {
			known[f]--
			out.Warnings = append(out.Warnings, e.Error()+" (accepted because it was so before)")
			continue
		}
		out.Errors = append(out.Errors, e)
	}
	return out
}
