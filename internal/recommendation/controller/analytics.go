// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// defaultPeriod is gocrane's default period of a periodical Analytics.
const defaultPeriod = 24 * time.Hour

// AnalyticsReconciler creates a RecommendationRule for each Analytics, and deletes it with the Analytics. A cluster-scoped
// rule cannot be owned by a namespaced object, so an annotation holds the UID of the Analytics.
type AnalyticsReconciler struct {
	// Client reads from the cache and writes to the API server; Live confirms deletions.
	Client client.Client
	Live   client.Reader
	// Namespace is Crane's own: an Analytics there covers all namespaces.
	Namespace string
	Clock     clock.PassiveClock
}

// addAnalytics adds the controller of Analytics.
func addAnalytics(mgr manager.Manager, cfg Config) error {
	r := &AnalyticsReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: cfg.Namespace, Clock: cfg.Clock}
	// One request covers all rules whose Analytics were deleted while craned was down.
	orphans := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if o.GetAnnotations()[analysisv1alpha1.AnnotationAnalyticsConversion] == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "orphans"}}}
	})
	err := builder.ControllerManagedBy(mgr).
		Named("analytics").
		For(&analysisv1alpha1.Analytics{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&analysisv1alpha1.RecommendationRule{}, orphans, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of analytics: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (r *AnalyticsReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	a := &analysisv1alpha1.Analytics{}
	err := r.Client.Get(ctx, req.NamespacedName, a)
	if req.Namespace == "" || apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.deleteOrphans(ctx)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading analytics %s: %w", req, err)
	}
	if a.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	name, err := r.convert(ctx, a)
	outcome := condition{
		conditionType: analysisv1alpha1.ConditionReady, status: true, reason: reasonConverted,
		message: "RecommendationRule " + name + " implements this Analytics.",
	}
	if err != nil {
		outcome.status, outcome.reason, outcome.message = false, reasonNotConverted, err.Error()
	}
	before := a.DeepCopy()
	if outcome.set(&a.Status.Conditions, a.Generation, r.Clock.Now()) {
		now := metav1.NewTime(r.Clock.Now())
		a.Status.LastUpdateTime = &now
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if patchErr := client.IgnoreNotFound(r.Client.Status().Patch(ctx, a, patch)); patchErr != nil && err == nil {
			err = fmt.Errorf("writing the status of analytics %s: %w", req, patchErr)
		}
	}
	return ctrl.Result{}, err
}

// convert creates or updates the rule of an Analytics and returns its name.
func (r *AnalyticsReconciler) convert(ctx context.Context, a *analysisv1alpha1.Analytics) (string, error) {
	want := r.buildRule(a)
	have, err := r.findRule(ctx, a.UID)
	if err != nil {
		return "", err
	}
	if have == nil {
		err := r.Client.Create(ctx, want)
		if !apierrors.IsAlreadyExists(err) {
			return want.Name, wrapError(err, "creating rule %s", want.Name)
		}
		have = &analysisv1alpha1.RecommendationRule{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
			return "", fmt.Errorf("reading rule %s: %w", want.Name, err)
		}
		if have.Annotations[analysisv1alpha1.AnnotationAnalyticsConversion] != string(a.UID) {
			return "", fmt.Errorf("rule %s exists and was not created for this Analytics", want.Name)
		}
	}
	before := have.DeepCopy()
	have.Spec = want.Spec
	have.Labels = mergeMaps(have.Labels, want.Labels)
	if equality.Semantic.DeepEqual(before, have) {
		return have.Name, nil
	}
	err = r.Client.Patch(ctx, have, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return have.Name, wrapError(err, "updating rule %s", have.Name)
}

func wrapError(err error, format, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", name, err)
}

// findRule returns the rule of an Analytics, created by gocrane or by Crane; nil if there is none.
func (r *AnalyticsReconciler) findRule(ctx context.Context, uid types.UID) (*analysisv1alpha1.RecommendationRule, error) {
	var list analysisv1alpha1.RecommendationRuleList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Annotations[analysisv1alpha1.AnnotationAnalyticsConversion] == string(uid) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// buildRule returns the rule that does what an Analytics requests. Its name contains the namespace, since rules are
// cluster-scoped.
func (r *AnalyticsReconciler) buildRule(a *analysisv1alpha1.Analytics) *analysisv1alpha1.RecommendationRule {
	prefix := a.Namespace + "-" + a.Name
	if room := validation.DNS1123LabelMaxLength - hashLength - 1; len(prefix) > room {
		prefix = prefix[:room]
	}
	rule := &analysisv1alpha1.RecommendationRule{
		ObjectMeta: metav1.ObjectMeta{
			Name: prefix + "-" + hash(a.Namespace, a.Name),
			Labels: map[string]string{
				analysisv1alpha1.LabelAnalyticsName: labelValue(a.Name), analysisv1alpha1.LabelAnalyticsUID: string(a.UID),
				analysisv1alpha1.LabelAnalyticsType: labelValue(string(a.Spec.Type)),
			},
			Annotations: map[string]string{analysisv1alpha1.AnnotationAnalyticsConversion: string(a.UID)},
		},
		Spec: analysisv1alpha1.RecommendationRuleSpec{
			ResourceSelectors: a.Spec.ResourceSelectors,
			NamespaceSelector: analysisv1alpha1.NamespaceSelector{MatchNames: []string{a.Namespace}},
			RunInterval:       intervalOf(a.Spec.CompletionStrategy),
			Recommenders:      []analysisv1alpha1.Recommender{{Name: string(a.Spec.Type), Config: maps.Clone(a.Spec.Config)}},
		},
	}
	if a.Namespace == r.Namespace {
		rule.Spec.NamespaceSelector = analysisv1alpha1.NamespaceSelector{Any: true}
	}
	return rule
}

// intervalOf returns the interval of a completion strategy in the form of rules; empty for once.
func intervalOf(s *analysisv1alpha1.CompletionStrategy) string {
	if s == nil || s.CompletionStrategyType != analysisv1alpha1.CompletionStrategyPeriodical {
		return ""
	}
	period := defaultPeriod
	if s.PeriodSeconds != nil && *s.PeriodSeconds > 0 {
		period = time.Duration(min(*s.PeriodSeconds, int64(time.Duration(1<<63-1)/time.Second))) * time.Second
	}
	return period.String()
}

// deleteOrphans deletes the rules of deleted Analytics. It lists Analytics from the API server, since a stale cache could
// lead to wrong deletions.
func (r *AnalyticsReconciler) deleteOrphans(ctx context.Context) error {
	var rules analysisv1alpha1.RecommendationRuleList
	if err := r.Client.List(ctx, &rules); err != nil {
		return fmt.Errorf("listing rules: %w", err)
	}
	var there analysisv1alpha1.AnalyticsList
	if err := r.Live.List(ctx, &there); err != nil {
		return fmt.Errorf("listing analytics: %w", err)
	}
	uids := map[string]bool{"": true}
	for i := range there.Items {
		uids[string(there.Items[i].UID)] = true
	}
	for i := range rules.Items {
		rule := &rules.Items[i]
		if uids[rule.Annotations[analysisv1alpha1.AnnotationAnalyticsConversion]] {
			continue
		}
		err := r.Client.Delete(ctx, rule, client.Preconditions{UID: &rule.UID, ResourceVersion: &rule.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting rule %s, whose Analytics is gone: %w", rule.Name, err)
		}
	}
	return nil
}
