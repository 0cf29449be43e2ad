// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// Reconciler looks after one Recommendation: it exports its value, writes it on the target where the adoption type
// says so, and deletes a Recommendation of a rule whose target is gone.
type Reconciler struct {
	// Client reads Recommendations from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server. It confirms what would be deleted, and reads kinds of which no cache is kept.
	Live    client.Reader
	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.PassiveClock

	written written
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rec := &analysisv1alpha1.Recommendation{}
	if err := r.Client.Get(ctx, req.NamespacedName, rec); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading recommendation %s: %w", req, err)
	}
	if rec.DeletionTimestamp != nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	values, valueErr := parseValue(rec.Status.RecommendedValue)
	r.Metrics.observe(rec, values)

	target, err := r.target(ctx, rec)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.targetGone(ctx, rec)
	}
	var adopted state
	var wait time.Duration
	switch {
	case err != nil && meta.IsNoMatchError(err):
		// The kind is gone, for example its CRD. It may come back; the rule's next round says what it is.
		adopted = state{kind: conditionAdopted, reason: reasonTargetGone, message: err.Error()}
	case err != nil:
		return ctrl.Result{}, err
	case valueErr != nil:
		adopted = state{kind: conditionAdopted, reason: analysisv1alpha1.ReasonFailedUpdateRecommendationValue, message: valueErr.Error()}
	default:
		if adopted, wait, err = r.adopt(ctx, rec, target); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: wait}, r.report(ctx, rec, adopted)
}

// forget drops what is kept of a Recommendation that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.Metrics.forget(key)
	r.written.forget(key)
}

// target reads the metadata of the target: from the cache for the kinds that are watched anyway, live for others.
func (r *Reconciler) target(ctx context.Context, rec *analysisv1alpha1.Recommendation) (client.Object, error) {
	ref := rec.Spec.TargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("target of %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	gvk := gv.WithKind(ref.Kind)
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	for _, kind := range watchedKinds() {
		if kind.gvk != gvk {
			continue
		}
		obj := kind.object
		if err := r.Client.Get(ctx, key, obj); err == nil {
			return obj, nil
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading target %s %s: %w", ref.Kind, key, err)
		}
		break // The cache may be behind: ask the API server before anything is concluded from it.
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(gvk)
	if err := r.Live.Get(ctx, key, obj); err != nil {
		return nil, fmt.Errorf("reading target %s %s: %w", ref.Kind, key, err)
	}
	return obj, nil
}

// targetGone deletes a Recommendation that a rule made; one that a user made stays, since it is the user's.
func (r *Reconciler) targetGone(ctx context.Context, rec *analysisv1alpha1.Recommendation) error {
	if rec.Labels[analysisv1alpha1.LabelRuleUID] == "" {
		return r.report(ctx, rec, state{kind: conditionAdopted, reason: reasonTargetGone, message: "The target does not exist."})
	}
	err := r.Client.Delete(ctx, rec, client.Preconditions{UID: &rec.UID, ResourceVersion: &rec.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting recommendation %s/%s, whose target is gone: %w", rec.Namespace, rec.Name, err)
	}
	r.Events.Eventf(rec, nil, corev1.EventTypeNormal, reasonTargetGone, "Delete",
		"%s %s is gone; the recommendation for it was deleted", rec.Spec.TargetRef.Kind, rec.Spec.TargetRef.Name)
	r.forget(client.ObjectKeyFromObject(rec))
	return nil
}

// report brings the condition Adopted in line: there while something is in the way, absent otherwise.
func (r *Reconciler) report(ctx context.Context, rec *analysisv1alpha1.Recommendation, adopted state) error {
	changed := rec.DeepCopy()
	if adopted.ok {
		if !meta.RemoveStatusCondition(&changed.Status.Conditions, conditionAdopted) {
			return nil
		}
	} else if !adopted.set(&changed.Status.Conditions, rec.Generation, r.Clock.Now()) {
		return nil
	}
	// Conditions are one list, and the rule's rounds write it too: the lock keeps the later writer from undoing it.
	patch := client.MergeFromWithOptions(rec, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, patch)); err != nil {
		return fmt.Errorf("writing the status of recommendation %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	if !adopted.ok {
		r.Events.Eventf(rec, nil, corev1.EventTypeWarning, adopted.reason, "Adopt", "%s", adopted.message)
	}
	return nil
}
