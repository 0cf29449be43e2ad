// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"

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

// act writes the proposals and deletes obsolete Recommendations, r.Workers at a time. One failed object does not stop the
// others.
func (r *RuleReconciler) act(
	ctx context.Context, b batch, proposals []proposal, obsolete []*analysisv1alpha1.Recommendation,
) []taskResult {
	results := make([]taskResult, len(proposals)+len(obsolete))
	var group errgroup.Group
	group.SetLimit(r.Workers)

	for i := range proposals {
		group.Go(func() error {
			next := &proposals[i]
			err := r.write(ctx, b, next)
			if err == nil {
				err = next.err // Its status explains the failure; now the target is retried.
			}

			results[i] = taskResult{next.id, err}
			return nil
		})
	}

	for i, rec := range obsolete {
		group.Go(func() error {
			err := r.remove(ctx, b, rec, reasonNotSelected, rec.Spec.TargetRef.Kind+" "+rec.Spec.TargetRef.Name+" is no longer selected")
			results[len(proposals)+i] = taskResult{identityOfObject(rec), err}
			return nil
		})
	}

	_ = group.Wait() // The functions return no errors.
	return results
}

// write creates, updates or deletes the Recommendation of a proposal. It retries transient errors at once, a few times; what remains is retried
// after the backoff of the target.
func (r *RuleReconciler) write(ctx context.Context, b batch, next *proposal) error {
	if next.plan.State == recommend.Clear {
		if next.existing == nil {
			return nil
		}

		return r.remove(ctx, b, next.existing, reasonCleared, next.plan.Description)
	}

	rec := next.existing
	if rec == nil {
		created, err := r.create(ctx, b, next)
		if err != nil || created == nil {
			return err
		}

		rec = created
	}

	err := retry.OnError(retry.DefaultBackoff, isTransient, func() error {
		err := r.update(ctx, b, next, rec.DeepCopy())
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
			return nil // It was deleted meanwhile; the next run decides again.
		}

		return fmt.Errorf("writing recommendation %s/%s for %s: %w", rec.Namespace, rec.Name, next.target.Ref, err)
	}

	r.Metrics.countExecution(rec)
	return nil
}

// create creates a Recommendation without its status. It returns nil if the namespace is being deleted.
func (r *RuleReconciler) create(ctx context.Context, b batch, next *proposal) (*analysisv1alpha1.Recommendation, error) {
	controller := false
	block := false
	rec := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   next.target.Namespace,
			Name:        objectName(b.rule.Name, next.id),
			Labels:      labelsOf(b.rule, next.target, next.id.recommender),
			Annotations: withoutEmpty(annotationsOf(b, next)),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: analysisv1alpha1.GroupVersion.String(), Kind: "RecommendationRule",
				Name: b.rule.Name, UID: b.rule.UID, Controller: &controller, BlockOwnerDeletion: &block,
			}},
		},
		Spec: analysisv1alpha1.RecommendationSpec{
			TargetRef:          targetRef(next.target),
			Type:               analysisv1alpha1.AnalysisType(next.id.recommender),
			CompletionStrategy: completionStrategyOf(b.schedule),
		},
	}

	// Cluster-scoped targets have no namespace for their Recommendation.
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
		return r.readCreated(ctx, b, rec)
	}

	return nil, fmt.Errorf("creating recommendation %s/%s for %s: %w", rec.Namespace, rec.Name, next.target.Ref, err)
}

// readCreated returns the existing object of the name of rec. It belongs to the rule if the cache was stale; otherwise it
// belongs to an earlier rule of the same name, and the garbage collector is about to delete it.
func (r *RuleReconciler) readCreated(ctx context.Context, b batch, rec *analysisv1alpha1.Recommendation) (*analysisv1alpha1.Recommendation, error) {
	found := &analysisv1alpha1.Recommendation{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(rec), found); err != nil {
		return nil, fmt.Errorf("reading recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}

	for _, owner := range found.OwnerReferences {
		if owner.UID == b.rule.UID {
			return found, nil
		}
	}

	return nil, fmt.Errorf("recommendation %s/%s exists and does not belong to this rule", rec.Namespace, rec.Name)
}

// update writes the status of rec, then its metadata, so that an object with the mark of a run has the status of that run.
// It skips the writes if nothing but evidence has changed, unless the evaluation was requested. It modifies rec.
func (r *RuleReconciler) update(ctx context.Context, b batch, next *proposal, rec *analysisv1alpha1.Recommendation) error {
	before := rec.DeepCopy()
	rec.Status.RecommendationContent = next.content
	rec.Status.Savings = next.savings
	if next.plan.State == recommend.Ready { // Otherwise the last value is kept, with its evidence.
		rec.Status.Evidence = next.evidence
	}

	for _, c := range conditionsOf(*next) {
		c.set(&rec.Status.Conditions, rec.Generation, r.Clock.Now())
	}

	if next.notApplicable == nil {
		meta.RemoveStatusCondition(&rec.Status.Conditions, analysisv1alpha1.ConditionApplicable)
	} else {
		next.notApplicable.set(&rec.Status.Conditions, rec.Generation, r.Clock.Now())
	}

	if equalExceptEvidence(before.Status, rec.Status) && !next.requested {
		rec.Status.Description = before.Status.Description
	}

	changed := !equality.Semantic.DeepEqual(before.Status, rec.Status)
	if changed || next.requested {
		if next.plan.State == recommend.Ready {
			now := metav1.NewTime(r.Clock.Now())
			rec.Status.LastUpdateTime = &now
		}

		// An update of the whole status costs the API server half of what a patch does, and in a large cluster its CPU time is
		// most of a run's.
		if err := r.Client.Status().Update(ctx, rec); err != nil {
			return err
		}
	}

	before = rec.DeepCopy()
	rec.Labels = mergeMaps(rec.Labels, labelsOf(b.rule, next.target, next.id.recommender))
	if ref := targetRef(next.target); !sameReference(rec.Spec.TargetRef, ref) {
		rec.Spec.TargetRef = ref
	}

	if equality.Semantic.DeepEqual(before, rec) && !changed && !next.requested && rec.Annotations[analysisv1alpha1.AnnotationEvaluatedRound] != "" {
		return nil
	}

	rec.Annotations = withoutEmpty(mergeMaps(rec.Annotations, annotationsOf(b, next)))
	if equality.Semantic.DeepEqual(before, rec) {
		return nil
	}

	return r.Client.Patch(ctx, rec, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// equalExceptEvidence reports whether two statuses differ in nothing but the evidence and the steps of their descriptions.
func equalExceptEvidence(before, after analysisv1alpha1.RecommendationStatus) bool {
	if recommend.WithoutEvidence(before.Description) != recommend.WithoutEvidence(after.Description) {
		return false
	}

	after.Description = before.Description
	return equality.Semantic.DeepEqual(before, after)
}

// remove deletes a Recommendation and emits an event about it.
func (r *RuleReconciler) remove(ctx context.Context, b batch, rec *analysisv1alpha1.Recommendation, reason, why string) error {
	err := r.Client.Delete(ctx, rec, client.Preconditions{UID: &rec.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}

	r.Events.Eventf(b.rule, rec, corev1.EventTypeNormal, reason, "Delete", "Deleted recommendation %s/%s: %s", rec.Namespace, rec.Name, why)
	return nil
}

// completionStrategyOf returns the interval of a rule in the form that gocrane's clients read.
func completionStrategyOf(s schedule) *analysisv1alpha1.CompletionStrategy {
	if s.once {
		return &analysisv1alpha1.CompletionStrategy{CompletionStrategyType: analysisv1alpha1.CompletionStrategyOnce}
	}

	seconds := int64(s.interval.Seconds())
	return &analysisv1alpha1.CompletionStrategy{
		CompletionStrategyType: analysisv1alpha1.CompletionStrategyPeriodical, PeriodSeconds: &seconds,
	}
}

// withoutEmpty removes the keys with an empty value.
func withoutEmpty(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(_, value string) bool { return value == "" })
	return m
}

func mergeMaps(base, from map[string]string) map[string]string {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]string{}
	}

	maps.Copy(out, from)
	return out
}
