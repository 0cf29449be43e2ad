// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
)

// indexRuleUID is the cache index of Recommendations by the UID of their rule.
const indexRuleUID = "metadata.labels.rule-uid"

// selection is the result of resolving the selectors of a rule.
type selection struct {
	// targets are the selected workloads, each once, in a fixed order.
	targets []workload.Workload
	// failures are the errors of selectors that could not be resolved. If there are any, a missing workload may still exist.
	failures []error
	// unreadable are the errors of targets that exist and could not be read.
	unreadable map[identity]error
	// empty describes the selectors that match nothing, missing are named namespaces that do not exist.
	empty, missing []string
}

// errorOf returns the error that made the target of a task unreadable; nil if it was read.
func (s selection) errorOf(t task) error {
	id := t.id
	id.recommender = ""
	return s.unreadable[id]
}

// readable returns the tasks whose targets were read.
func (s selection) readable(tasks []task) []task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t task) bool { return s.errorOf(t) != nil })
}

// selectTargets resolves the selectors of a rule. A failed selector does not stop the others; an error is returned only if
// ctx ends.
func (r *RuleReconciler) selectTargets(ctx context.Context, rule *analysisv1alpha1.RecommendationRule) (selection, error) {
	s := selection{unreadable: map[identity]error{}}
	seen := map[identity]bool{}
	take := func(w workload.Workload) bool {
		id := identityOf(w.Ref, "")
		if seen[id] || w.Deleting || w.Owned {
			return false
		}

		seen[id] = true
		s.targets = append(s.targets, w)
		return true
	}

	for i, selector := range rule.Spec.ResourceSelectors {
		before := len(seen)
		err := r.resolveSelector(ctx, selector, rule.Spec.NamespaceSelector, func(w workload.Workload, broken error) {
			if take(w) && broken != nil {
				s.unreadable[identityOf(w.Ref, "")] = broken
			}
		})

		if ctx.Err() != nil {
			return selection{}, fmt.Errorf("selecting the targets: %w", ctx.Err())
		}

		if err != nil {
			s.failures = append(s.failures, fmt.Errorf("spec.resourceSelectors[%d]: %w", i, err))
		} else if len(seen) == before {
			s.empty = append(s.empty, fmt.Sprintf("spec.resourceSelectors[%d] (%s)", i, strings.TrimSpace(selector.Kind+" "+selector.Name)))
		}
	}

	// Lists come in any order; evaluations are always in the same one.
	slices.SortFunc(s.targets, func(a, b workload.Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.APIVersion, b.APIVersion))
	})

	return s, nil
}

// missingNamespaces returns the namespaces that a rule names and that do not exist. Those that cannot be read count as existing.
func (r *RuleReconciler) missingNamespaces(ctx context.Context, s analysisv1alpha1.NamespaceSelector) []string {
	var out []string
	if s.Any {
		return nil
	}

	for _, name := range s.MatchNames {
		ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, ns); apierrors.IsNotFound(err) {
			out = append(out, name)
		}
	}

	return out
}

func (r *RuleReconciler) resolveSelector(
	ctx context.Context, s analysisv1alpha1.ResourceSelector, namespaces analysisv1alpha1.NamespaceSelector,
	visit func(workload.Workload, error),
) error {
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	if err != nil {
		return fmt.Errorf("labelSelector: %w", err)
	}

	if s.LabelSelector == nil {
		selector = labels.Everything() // LabelSelectorAsSelector converts nil into a selector that matches nothing.
	}

	kinds, err := r.Kinds.Resolve(s.APIVersion, s.Kind)
	if err != nil {
		return err
	}

	var errs []error
	for _, kind := range kinds {
		for _, ns := range namespacesToList(namespaces, workload.IsClusterScoped(kind.GroupKind())) {
			q := workload.Query{
				Kind:      kind,
				Namespace: ns,
				Name:      s.Name,
				Selector:  selector,
			}

			if err := r.list(ctx, q, visit); err != nil {
				errs = append(errs, err)
			}
		}
	}

	return errors.Join(errs...)
}

// namespacesToList returns the namespaces to list. Cluster-scoped targets are selected only by rules of all namespaces, as
// in gocrane.
func namespacesToList(s analysisv1alpha1.NamespaceSelector, clusterScoped bool) []string {
	switch {
	case s.Any:
		return []string{metav1.NamespaceAll}
	case clusterScoped:
		return nil
	}

	return s.MatchNames
}

// list visits the objects of one query: workloads with a summary of their pods, others with their metadata only.
func (r *RuleReconciler) list(ctx context.Context, q workload.Query, visit func(workload.Workload, error)) error {
	listCtx, cancel := context.WithTimeout(ctx, r.ListTimeout)
	defer cancel()

	if q.Kind.Group == "" && slices.Contains(kindsWithoutPods(), q.Kind.Kind) {
		return r.Lister.ListIdentities(listCtx, q, func(w workload.Workload) error {
			visit(w, nil)
			return nil
		})
	}

	return r.Lister.ListEach(listCtx, q, func(w workload.Workload, err error) error {
		visit(w, err)
		return nil
	})
}

// recommendationSet are the Recommendations of a rule.
type recommendationSet struct {
	byIdentity map[identity]*analysisv1alpha1.Recommendation
	// duplicates have the identity of an older Recommendation.
	duplicates []*analysisv1alpha1.Recommendation
}

// anyRequested reports whether a user requested the evaluation of one of the Recommendations.
func (s recommendationSet) anyRequested() bool {
	for _, rec := range s.byIdentity {
		if evaluationRequested(rec) {
			return true
		}
	}

	return false
}

// existingRecommendations returns the Recommendations of a rule, including those that gocrane created under another name.
// Those in another namespace than their target are omitted: Crane creates none, and the next value of the target would be readable there.
func existingRecommendations(
	ctx context.Context, reader client.Reader, rule *analysisv1alpha1.RecommendationRule, systemNamespace string,
) (recommendationSet, error) {
	all, err := recommendationsWithUID(ctx, reader, rule.UID)
	if err != nil {
		return recommendationSet{}, err
	}

	// Recommendations that gocrane made for an Analytics have its UID instead of that of a rule.
	if analytics := rule.Annotations[analysisv1alpha1.AnnotationAnalyticsConversion]; analytics != "" {
		older, err := recommendationsWithUID(ctx, reader, types.UID(analytics))
		if err != nil {
			return recommendationSet{}, err
		}

		all = append(all, slices.DeleteFunc(older, func(rec analysisv1alpha1.Recommendation) bool {
			return rec.Labels[analysisv1alpha1.LabelRuleUID] != ""
		})...)
	}

	slices.SortFunc(all, func(a, b analysisv1alpha1.Recommendation) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})

	out := recommendationSet{byIdentity: make(map[identity]*analysisv1alpha1.Recommendation, len(all))}
	for i := range all {
		rec := &all[i]
		if targetindex.CheckNamespace(rec, systemNamespace) != nil {
			continue
		}

		id := identityOfObject(rec)
		if _, exists := out.byIdentity[id]; exists {
			out.duplicates = append(out.duplicates, rec)
			continue
		}

		out.byIdentity[id] = rec
	}

	return out, nil
}

func recommendationsWithUID(ctx context.Context, reader client.Reader, uid types.UID) ([]analysisv1alpha1.Recommendation, error) {
	var list analysisv1alpha1.RecommendationList
	// The objects of the cache are not copied, since a rule may have tens of thousands. They are read only.
	if err := reader.List(ctx, &list, client.MatchingFields{indexRuleUID: string(uid)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the recommendations of the rule: %w", err)
	}

	return list.Items, nil
}

// matchesAny reports whether a selector matches a workload; an empty list matches none, as in gocrane.
func matchesAny(w workload.Workload, list []analysisv1alpha1.ResourceSelector) bool {
	return slices.ContainsFunc(list, func(s analysisv1alpha1.ResourceSelector) bool {
		if s.Kind != w.Kind || (s.APIVersion != "" && workload.GroupOf(s.APIVersion, s.Kind) != workload.GroupOf(w.APIVersion, w.Kind)) ||
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

// KindResolver resolves the kinds of a selector.
type KindResolver interface {
	// Resolve returns the served kinds. An empty apiVersion matches any group that serves the kind. It is an error if there
	// is none.
	Resolve(apiVersion, kind string) ([]schema.GroupVersionKind, error)
}
