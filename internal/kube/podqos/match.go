// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podqos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// Rule is a PodQOS with parsed selectors.
type Rule struct {
	*ensurancev1alpha1.PodQOS

	labels labels.Selector
}

// NewRule parses the selectors of a PodQOS. The API server admits no invalid selector; a file may have one.
func NewRule(q *ensurancev1alpha1.PodQOS) (Rule, error) {
	selector, err := metav1.LabelSelectorAsSelector(q.Spec.LabelSelector)
	if err != nil {
		return Rule{}, fmt.Errorf("labelSelector: %w", err)
	}

	if scope := q.Spec.ScopeSelector; scope != nil {
		for i, r := range scope.MatchExpressions {
			if err := validateScope(r); err != nil {
				return Rule{}, fmt.Errorf("scopeSelector.matchExpressions[%d]: %w", i, err)
			}
		}
	}

	return Rule{q, selector}, nil
}

// Matches reports whether the PodQOS applies to a pod: both of its selectors have to match, and at least one has to be set.
func (r Rule) Matches(pod *corev1.Pod) bool {
	scope := r.Spec.ScopeSelector
	everyone := isEmptySelector(r.Spec.LabelSelector)
	if scope == nil && everyone || !everyone && !r.labels.Matches(labels.Set(pod.Labels)) {
		return false
	}

	return scope == nil || !slices.ContainsFunc(scope.MatchExpressions, func(c ensurancev1alpha1.ScopeSelectorRequirement) bool {
		return inScope(c, pod) != (c.Operator == ensurancev1alpha1.ScopeOperatorIn)
	})
}

// validateScope returns the error of a condition. An unknown operator must be an error, because otherwise the PodQOS would apply
// to unintended pods.
func validateScope(r ensurancev1alpha1.ScopeSelectorRequirement) error {
	if r.Operator != ensurancev1alpha1.ScopeOperatorIn && r.Operator != ensurancev1alpha1.ScopeOperatorNotIn {
		return fmt.Errorf("unknown operator %q", r.Operator)
	}

	if len(r.Values) == 0 {
		return fmt.Errorf("%s has no values", r.Operator)
	}

	switch r.ScopeName {
	case ensurancev1alpha1.ScopeQOSClass, ensurancev1alpha1.ScopeNamespace:
		return nil
	case ensurancev1alpha1.ScopePriority:
		for _, v := range r.Values {
			if _, _, err := ParsePriorityRange(v); err != nil {
				return err
			}
		}

		return nil
	}

	return fmt.Errorf("unknown scope %q", r.ScopeName)
}

func isEmptySelector(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

// inScope reports whether the pod has one of the values, which are valid.
func inScope(r ensurancev1alpha1.ScopeSelectorRequirement, pod *corev1.Pod) bool {
	switch r.ScopeName {
	case ensurancev1alpha1.ScopeQOSClass:
		return slices.Contains(r.Values, string(QOSClass(pod)))
	case ensurancev1alpha1.ScopeNamespace:
		return slices.Contains(r.Values, pod.Namespace)
	case ensurancev1alpha1.ScopePriority:
		priority := ptr.Deref(pod.Spec.Priority, 0)
		return slices.ContainsFunc(r.Values, func(v string) bool {
			low, high, err := ParsePriorityRange(v)
			return err == nil && low <= priority && priority <= high
		})
	}

	return false
}

// ParsePriorityRange parses a priority such as -100, or a range such as 1000-3000 or -100--50 with inclusive ends.
func ParsePriorityRange(text string) (low, high int32, err error) {
	number := func(s string) int32 {
		n, parsing := strconv.ParseInt(s, 10, 32)
		if parsing != nil {
			err = fmt.Errorf("priority %q: must be a number from %d to %d, or two of them with a - between", text, math.MinInt32, math.MaxInt32)
		}

		return int32(n)
	}

	// The first - may be a sign.
	if i := strings.Index(text[min(1, len(text)):], "-"); i >= 0 {
		low = number(text[:i+1])
		high = number(text[i+2:])
		return low, high, err
	}

	low = number(text)
	return low, low, err
}

// QOSClass returns the QoS class of a pod by the rules of the API server: a pod that is being created has none yet.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}

	some := false
	guaranteed := true

	podLevel := pod.Spec.Resources != nil && (len(pod.Spec.Resources.Requests) > 0 || len(pod.Spec.Resources.Limits) > 0)
	var all []*corev1.ResourceRequirements
	if podLevel {
		all = append(all, pod.Spec.Resources)
	} else {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				all = append(all, &list[i].Resources)
			}
		}
	}

	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request := r.Requests[name]
			limit := r.Limits[name]
			some = some || !request.IsZero() || !limit.IsZero()

			// A missing request is the limit.
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}

	switch {
	case !some:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}

	return corev1.PodQOSBurstable
}

// Rules are the valid rules of several PodQOSs.
type Rules []Rule

// NewRules parses PodQOSs and leaves out invalid ones.
func NewRules(list []*ensurancev1alpha1.PodQOS) Rules {
	var out Rules
	for _, q := range list {
		if r, err := NewRule(q); err == nil {
			out = append(out, r)
		}
	}

	return out
}

// BestMatch returns the most specific PodQOS that matches a pod: the one with more labels, then with a scope, then with more
// conditions on it, then the first by name. It is nil if none matches.
func (r Rules) BestMatch(pod *corev1.Pod) *ensurancev1alpha1.PodQOS {
	var best *ensurancev1alpha1.PodQOS
	for _, rule := range r {
		if rule.Matches(pod) && (best == nil || compareSpecificity(rule.PodQOS, best) < 0) {
			best = rule.PodQOS
		}
	}

	return best
}

// compareSpecificity orders rules by specificity, most specific first.
func compareSpecificity(a, b *ensurancev1alpha1.PodQOS) int {
	return cmp.Or(
		cmp.Compare(labelCount(b), labelCount(a)),
		cmp.Compare(scopeCount(b), scopeCount(a)),
		cmp.Compare(a.Name, b.Name),
	)
}

func labelCount(q *ensurancev1alpha1.PodQOS) int {
	if q.Spec.LabelSelector == nil {
		return 0
	}

	return len(q.Spec.LabelSelector.MatchLabels)
}

// scopeCount returns the number of conditions on the scope, -1 without a scope.
func scopeCount(q *ensurancev1alpha1.PodQOS) int {
	if q.Spec.ScopeSelector == nil {
		return -1
	}

	return len(q.Spec.ScopeSelector.MatchExpressions)
}
