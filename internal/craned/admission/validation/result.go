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

// Facts are facts about the cluster that a validation may depend on.
type Facts struct {
	// Namespace is Crane's own namespace.
	Namespace string
	// Actions are the AvoidanceActions by name; nil if they are unknown.
	Actions map[string]ensurancev1alpha1.AvoidanceActionSpec
	// ValidateRecommender returns the error with which a recommender would fail under the current configuration; nil if that is
	// unknown.
	ValidateRecommender func(analysisv1alpha1.Recommender) error
	// DisabledKinds are the kinds that no controller processes, with the reason.
	DisabledKinds map[string]string
}

// Disabled returns a warning that no controller processes objects of a kind; ok is false where one does.
func (f Facts) Disabled(kind string) (warning string, ok bool) {
	reason, ok := f.DisabledKinds[kind]
	return fmt.Sprintf("craned does not process objects of kind %s: %s", kind, reason), ok
}

// Result is the result of a validation.
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

// merge adds the errors and warnings of another result.
func (v *Result) merge(other Result) {
	v.Errors = append(v.Errors, other.Errors...)
	v.Warnings = append(v.Warnings, other.Warnings...)
}

var indices = regexp.MustCompile(`\[[0-9]+\]`)

// errorKey returns the text of an error without list indices, which change when an earlier element is inserted or removed.
func errorKey(e *field.Error) string {
	return fmt.Sprintf("%s|%s|%v|%s", e.Type, indices.ReplaceAllString(e.Field, "[]"), e.BadValue, e.Detail)
}

// Ratchet returns the result of an update: errors that the old object had too become warnings. An object that was stored without
// the webhook, or before a rule existed, can therefore still be labeled, finalized and corrected step by step.
func Ratchet(before, after Result) Result {
	earlier := map[string]int{}
	for _, e := range before.Errors {
		earlier[errorKey(e)]++
	}

	out := Result{Warnings: slices.Clone(after.Warnings)}
	for _, e := range after.Errors {
		if f := errorKey(e); earlier[f] > 0 {
			earlier[f]--
			out.Warnings = append(out.Warnings, e.Error()+" (accepted because it was so before)")
			continue
		}

		out.Errors = append(out.Errors, e)
	}

	return out
}
