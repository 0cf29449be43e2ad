// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/workload"
)

// indexRuleUID finds the Recommendations of a rule in the cache.
const indexRuleUID = "metadata.labels.rule-uid"

// selection is what a rule is about at one time.
type selection struct {
	// targets are the selected workloads, each once, in a fixed order.
	targets []workload.Workload
	// failures are selectors that could not be resolved. While there are any, the selection is not complete and
	// nothing may be concluded from a workload's absence.
	failures []error
}

// selectTargets resolves the selectors of a rule. It fails only when ctx ends; whatever else goes wrong with one
// selector leaves the others standing.
func (r *RuleReconciler) selectTargets(ctx context.Context, rule *analysisv1alpha1.RecommendationRule) (selection, error) {
	var s selection
	seen := map[identity]bool{}
	for i, selector := range rule.Spec.ResourceSelectors {
		err := r.selectOne(ctx, selector, rule.Spec.NamespaceSelector, func(w workload.Workload) error {
			if id := identityOf(w.Ref, ""); !seen[id] && !w.Deleting && !w.Part {
				seen[id] = true
				s.targets = append(s.targets, w)
			}
			return nil
		})
		if ctx.Err() != nil {
			return selection{}, fmt.Errorf("selecting the targets: %w", ctx.Err())
		}
		if err != nil {
			s.failures = append(s.failures, fmt.Errorf("spec.resourceSelectors[%d]: %w", i, err))
		}
	}
	slices.SortFunc(s.targets, func(a, b workload.Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.APIVersion, b.APIVersion))
	})
	return s, nil
}

func (r *RuleReconciler) selectOne(
	ctx context.Context, s analysisv1alpha1.ResourceSelector, namespaces analysisv1alpha1.NamespaceSelector,
	visit func(workload.Workload) error,
) error {
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	if err != nil {
		return fmt.Errorf("labelSelector: %w", err)
	}
	if s.LabelSelector == nil {
		selector = labels.Everything() // The function above takes nil for "selects nothing".
	}
	kinds, err := r.Kinds.Resolve(s.APIVersion, s.Kind)
	if err != nil {
		return err
	}
	names := namespaces.MatchNames
	if namespaces.Any {
		names = []string{metav1.NamespaceAll}
	}
	var errs []error
	for _, kind := range kinds {
		for _, ns := range names {
			q := workload.Query{Kind: kind, Namespace: ns, Name: s.Name, Selector: selector}
			listing, cancel := context.WithTimeout(ctx, r.ListTimeout)
			err := r.Lister.List(listing, q, visit)
			cancel()
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// existing returns the Recommendations that belong to a rule, by what they are for. A Recommendation of the rule that
// gocrane made under another name is found like our own. Where two are for the same thing the older one counts and
// the other is surplus.
func existing(ctx context.Context, reader client.Reader, uid types.UID) (
	byIdentity map[identity]*analysisv1alpha1.Recommendation, surplus []*analysisv1alpha1.Recommendation, err error,
) {
	var list analysisv1alpha1.RecommendationList
	if err := reader.List(ctx, &list, client.MatchingFields{indexRuleUID: string(uid)}); err != nil {
		return nil, nil, fmt.Errorf("listing the recommendations of the rule: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b analysisv1alpha1.Recommendation) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	byIdentity = make(map[identity]*analysisv1alpha1.Recommendation, len(list.Items))
	for i := range list.Items {
		rec := &list.Items[i]
		id := identityOfObject(rec)
		if _, taken := byIdentity[id]; taken {
			surplus = append(surplus, rec)
			continue
		}
		byIdentity[id] = rec
	}
	return byIdentity, surplus, nil
}

// accepted tells whether a recommender's configuration takes a workload; an empty list takes none, as in gocrane.
func accepted(w workload.Workload, list []analysisv1alpha1.ResourceSelector) bool {
	return slices.ContainsFunc(list, func(s analysisv1alpha1.ResourceSelector) bool {
		if s.Kind != w.Kind || (s.APIVersion != "" && groupOf(s.APIVersion) != groupOf(w.APIVersion)) ||
			(s.Name != "" && s.Name != w.Name) {
			return false
		}
		if s.LabelSelector == nil {
			return true
		}
		selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
		return err == nil && selector.Matches(labels.Set(w.Labels))
	})
}

// KindResolver finds the kinds that a selector means.
type KindResolver interface {
	// Resolve returns the kinds that are served; apiVersion may be empty, which means any group that serves the kind.
	// The error says when there is none.
	Resolve(apiVersion, kind string) ([]schema.GroupVersionKind, error)
}
