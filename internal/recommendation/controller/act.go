// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/recommend"
)

// maxTries is how often a target is tried that cannot be read or written. After that the round counts as done without it,
// so that it does not keep all others from being evaluated again.
const maxTries = 5

// act writes the proposals, a few at a time, and, at the end of a round, deletes Recommendations of what the rule no longer
// selects.
func (r *RuleReconciler) act(ctx context.Context, rd *pass) *outcome {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(r.Workers)
	note := func(id identity, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			rd.progress.recordFailure(id, err, r.Clock.Now())
			return
		}
		rd.progress.recordSuccess(id)
	}
	for i := range rd.proposals {
		group.Go(func() error {
			p := &rd.proposals[i]
			err := r.write(ctx, rd, p)
			if err == nil {
				err = p.err // It is told in the status; now the target gets its next try.
			}
			note(p.id, err)
			return nil
		})
	}
	for _, rec := range r.stale(rd) {
		group.Go(func() error {
			err := r.remove(ctx, rd, rec, reasonNotSelected, rec.Spec.TargetRef.Kind+" "+rec.Spec.TargetRef.Name+" is no longer selected")
			note(identityOfObject(rec), err)
			return nil
		})
	}
	// The functions return no errors: one object that fails does not stop the others.
	_ = group.Wait()
	return nil
}

// write brings one Recommendation in line with its proposal.
func (r *RuleReconciler) write(ctx context.Context, rd *pass, p *proposal) error {
	if p.plan.State == recommend.Clear {
		return r.clear(ctx, rd, p)
	}
	rec := p.existing
	if rec == nil {
		created, err := r.create(ctx, rd, p)
		if err != nil || created == nil {
			return err
		}
		rec = created
	}
	err := retry.OnError(retry.DefaultBackoff, isTransient, func() error {
		err := r.update(ctx, rd, p, rec.DeepCopy())
		if apierrors.IsConflict(err) {
			fresh := &analysisv1alpha1.Recommendation{}
			if getErr := r.Live.Get(ctx, client.ObjectKeyFromObject(rec), fresh); getErr != nil {
				return getErr
			}
			if fresh.UID != rec.UID {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "recommendations"}, rec.Name)
			}
			rec = fresh
		}
		return err
	})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil // Deleted meanwhile, with its target or by hand; the next round decides anew.
		}
		return fmt.Errorf("writing recommendation %s/%s for %s: %w", rec.Namespace, rec.Name, p.target.Ref, err)
	}
	r.Metrics.countExecution(rec)
	return nil
}

// isTransient tells of errors that may be gone a moment later. What lasts longer is tried again after the target's back-off.
func isTransient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
}

// clear takes away the Recommendation of a target with which nothing is wrong any more.
func (r *RuleReconciler) clear(ctx context.Context, rd *pass, p *proposal) error {
	if p.existing == nil {
		return nil
	}
	return r.remove(ctx, rd, p.existing, reasonCleared, p.plan.Description)
}

// create makes the object without its status. It returns nil where nothing can be created: the namespace is on its
// way out.
func (r *RuleReconciler) create(ctx context.Context, rd *pass, p *proposal) (*analysisv1alpha1.Recommendation, error) {
	controller, block := false, false
	rec := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   p.target.Namespace,
			Name:        objectName(rd.rule.Name, p.id),
			Labels:      labelsOf(rd.rule, p.target, p.id.recommender),
			Annotations: withoutEmpty(annotationsOf(rd, *p)),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: analysisv1alpha1.GroupVersion.String(), Kind: "RecommendationRule",
				Name: rd.rule.Name, UID: rd.rule.UID, Controller: &controller, BlockOwnerDeletion: &block,
			}},
		},
		Spec: analysisv1alpha1.RecommendationSpec{
			TargetRef:          targetRef(p.target),
			Type:               analysisv1alpha1.AnalysisType(p.id.recommender),
			CompletionStrategy: completionStrategyOf(rd.schedule),
		},
	}
	if rec.Namespace == "" {
		rec.Namespace = r.Namespace
	}
	err := retry.OnError(retry.DefaultBackoff, isTransient, func() error { return r.Client.Create(ctx, rec) })
	switch {
	case err == nil:
		return rec, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return r.adoptExisting(ctx, rd, rec)
	}
	return nil, fmt.Errorf("creating recommendation %s/%s for %s: %w", rec.Namespace, rec.Name, p.target.Ref, err)
}

// adoptExisting deals with an object that has the name already: it is ours where the cache was behind, and else that
// of an earlier rule of the same name, which the garbage collector is about to delete.
func (r *RuleReconciler) adoptExisting(
	ctx context.Context, rd *pass, rec *analysisv1alpha1.Recommendation,
) (*analysisv1alpha1.Recommendation, error) {
	found := &analysisv1alpha1.Recommendation{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(rec), found); err != nil {
		return nil, fmt.Errorf("reading recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	for _, owner := range found.OwnerReferences {
		if owner.UID == rd.rule.UID {
			return found, nil
		}
	}
	return nil, fmt.Errorf("recommendation %s/%s exists and does not belong to this rule", rec.Namespace, rec.Name)
}

// update writes status, then metadata: an object with this round's mark has this round's status. What says the same as before
// is not written, unless somebody asked to see it evaluated. rec is changed.
func (r *RuleReconciler) update(ctx context.Context, rd *pass, p *proposal, rec *analysisv1alpha1.Recommendation) error {
	before := rec.DeepCopy()
	rec.Status.RecommendationContent = p.content
	rec.Status.Savings = p.savings
	for _, c := range conditionsOf(*p) {
		c.set(&rec.Status.Conditions, rec.Generation, r.Clock.Now())
	}
	if p.notApplicable == nil {
		meta.RemoveStatusCondition(&rec.Status.Conditions, analysisv1alpha1.ConditionApplicable)
	} else {
		p.notApplicable.set(&rec.Status.Conditions, rec.Generation, r.Clock.Now())
	}
	if equalExceptEvidence(before.Status, rec.Status) && !p.requested {
		rec.Status.Description = before.Status.Description
	}
	changed := !equality.Semantic.DeepEqual(before.Status, rec.Status)
	if changed || p.requested {
		if p.plan.State == recommend.Ready {
			now := metav1.NewTime(r.Clock.Now())
			rec.Status.LastUpdateTime = &now
		}
		// The whole of it, with its UID and resourceVersion: an API server takes that with half of what a patch costs it, and in a
		// large cluster its time is most of a round's.
		if err := r.Client.Status().Update(ctx, rec); err != nil {
			return err
		}
	}
	before = rec.DeepCopy()
	rec.Labels = mergeMaps(rec.Labels, labelsOf(rd.rule, p.target, p.id.recommender))
	if ref := targetRef(p.target); !sameReference(rec.Spec.TargetRef, ref) {
		rec.Spec.TargetRef = ref
	}
	if equality.Semantic.DeepEqual(before, rec) && !changed && !p.requested && rec.Annotations[analysisv1alpha1.AnnotationEvaluatedRound] != "" {
		return nil
	}
	rec.Annotations = withoutEmpty(mergeMaps(rec.Annotations, annotationsOf(rd, *p)))
	if equality.Semantic.DeepEqual(before, rec) {
		return nil
	}
	return r.Client.Patch(ctx, rec, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// equalExceptEvidence tells whether two statuses propose the same for the same reasons, and differ in nothing but the numbers behind them.
func equalExceptEvidence(before, after analysisv1alpha1.RecommendationStatus) bool {
	if recommend.WithoutEvidence(before.Description) != recommend.WithoutEvidence(after.Description) {
		return false
	}
	after.Description = before.Description
	return equality.Semantic.DeepEqual(before, after)
}

// stale lists the Recommendations of what the rule no longer selects, and those that are there twice. While a selector
// could not be resolved, and before the last pass of a round, there are none: what is missing then may only be out of
// sight.
func (r *RuleReconciler) stale(rd *pass) []*analysisv1alpha1.Recommendation {
	if len(rd.selection.failures) > 0 || len(rd.remaining) > 0 || rd.upToDate {
		return nil
	}
	unserved := map[string]bool{}
	for _, recommender := range rd.rule.Spec.Recommenders {
		unserved[recommender.Name] = true // Until it turns out to run: what is wrong with its settings says nothing of its targets.
	}
	selected := map[identity]bool{}
	for _, run := range rd.recommenders {
		delete(unserved, run.name)
		for _, w := range rd.selection.targets {
			if run.supportsTarget(w) && run.accepts(w) {
				selected[identityOf(w.Ref, run.name)] = true
			}
		}
	}
	out := rd.duplicates
	for id, rec := range rd.existing {
		if !selected[id] && !unserved[id.recommender] {
			out = append(out, rec)
		}
	}
	return out
}

func (r *RuleReconciler) remove(
	ctx context.Context, rd *pass, rec *analysisv1alpha1.Recommendation, reason, why string,
) error {
	err := r.Client.Delete(ctx, rec, client.Preconditions{UID: &rec.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	r.Events.Eventf(rd.rule, rec, corev1.EventTypeNormal, reason, "Delete", "Deleted recommendation %s/%s: %s", rec.Namespace, rec.Name, why)
	return nil
}

// completionStrategyOf tells old clients what the rule's interval means.
func completionStrategyOf(s schedule) *analysisv1alpha1.CompletionStrategy {
	if s.once {
		return &analysisv1alpha1.CompletionStrategy{CompletionStrategyType: analysisv1alpha1.CompletionStrategyOnce}
	}
	seconds := int64(s.interval.Seconds())
	return &analysisv1alpha1.CompletionStrategy{
		CompletionStrategyType: analysisv1alpha1.CompletionStrategyPeriodical, PeriodSeconds: &seconds,
	}
}

// withoutEmpty drops keys without a value: an annotation that says nothing goes.
func withoutEmpty(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(_, value string) bool { return value == "" })
	return m
}

func mergeMaps(into, from map[string]string) map[string]string {
	out := maps.Clone(into)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, from)
	return out
}
