// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/enqueue"
	"crane.io/crane/internal/kube/fairqueue"
	"crane.io/crane/pkg/settings"
)

// defaultPeriod is gocrane's default period of a periodical Analytics.
const defaultPeriod = 24 * time.Hour

// AnalyticsReconciler creates a RecommendationRule for each Analytics, and deletes it with the Analytics. A cluster-scoped
// rule cannot be owned by a namespaced object, so an annotation holds the UID of the Analytics.
type AnalyticsReconciler struct {
	// Client reads from the cache and writes to the API server; Live confirms deletions.
	Client client.Client
	Live   client.Reader
	// Settings returns the settings in force.
	Settings func() Settings
	// Namespace is Crane's own: an Analytics there covers all namespaces.
	Namespace string
	Clock     clock.PassiveClock
}

const (
	// maxMissions bounds status.recommendations of an Analytics: some 600 bytes each, in an object of at most 1.5 MiB.
	maxMissions = 500
	// missionDelay is the time in which changes of a rule and its Recommendations are collected before the status of their
	// Analytics is written.
	missionDelay = 2 * time.Second
	// orphanDelay is the time in which deletions of Analytics are collected before their rules are deleted.
	orphanDelay = 5 * time.Second
	// indexAnalyticsUID indexes Analytics by their UID, and rules by that of their Analytics.
	indexAnalyticsUID = "crane.io/analytics-uid"
)

// orphans returns the request to delete the rules of deleted Analytics.
func orphans() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: "orphans"}}
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// addAnalytics adds the controller of Analytics.
func addAnalytics(mgr manager.Manager, cfg Config) error {
	r := &AnalyticsReconciler{
		Client:    mgr.GetClient(),
		Live:      mgr.GetAPIReader(),
		Settings:  cfg.Settings.Content,
		Namespace: cfg.Namespace,
		Clock:     cfg.Clock,
	}

	shares := fairqueue.ByNamespace(cfg.Clock)
	err := builder.ControllerManagedBy(mgr).
		Named("analytics").
		For(&analysisv1alpha1.Analytics{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// One request covers all rules whose Analytics were deleted, also while craned was down: the first event of a rule is its creation.
		Watches(&analysisv1alpha1.Analytics{}, handler.Funcs{
			DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q requestQueue) { q.AddAfter(orphans(), orphanDelay) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q requestQueue) {
				if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() { // A relist merged the deletion with the creation of another one of the name.
					q.AddAfter(orphans(), orphanDelay)
				}
			},
		}).
		Watches(&analysisv1alpha1.RecommendationRule{}, handler.Funcs{CreateFunc: func(_ context.Context, e event.CreateEvent, q requestQueue) {
			if e.Object.GetAnnotations()[analysisv1alpha1.AnnotationAnalyticsConversion] != "" {
				q.AddAfter(orphans(), orphanDelay)
			}
		}}).
		Watches(&analysisv1alpha1.RecommendationRule{}, r.enqueueLater()).
		Watches(&analysisv1alpha1.Recommendation{}, r.enqueueLater()).
		WithOptions(shares.Options(2, 1)).
		Complete(shares.Reconciler(enqueue.OnConflict(r)))
	if err != nil {
		return fmt.Errorf("building the controller of analytics: %w", err)
	}

	return nil
}

// enqueueLater returns a handler that requests, after missionDelay, the Analytics of a rule or a Recommendation.
func (r *AnalyticsReconciler) enqueueLater() handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q requestQueue) {
		uid := o.GetLabels()[analysisv1alpha1.LabelAnalyticsUID]
		if uid == "" {
			return
		}

		var list analysisv1alpha1.AnalyticsList
		if err := r.Client.List(ctx, &list, client.MatchingFields{indexAnalyticsUID: uid}, client.UnsafeDisableDeepCopy); err != nil {
			return // The cache is stopping.
		}

		for i := range list.Items {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, missionDelay)
		}
	}

	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q requestQueue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q requestQueue) { enqueue(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q requestQueue) { enqueue(ctx, e.Object, q) },
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *AnalyticsReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req == orphans() {
		return ctrl.Result{}, r.deleteOrphans(ctx)
	}

	a := &analysisv1alpha1.Analytics{}
	err := r.Client.Get(ctx, req.NamespacedName, a)
	if apierrors.IsNotFound(err) || err == nil && a.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading analytics %s: %w", req, err)
	}

	recommender, ignored := r.recommenderOf(a)
	rule, err := r.convert(ctx, a, recommender)
	before := a.DeepCopy()

	// Recommendations that cannot be listed leave those of the last time in the status.
	outcome := notReady(reasonNotConverted, fmt.Sprint(err))
	if err == nil {
		outcome = analyticsCondition(rule, ignored)
		var missions []analysisv1alpha1.RecommendationMission
		if missions, err = r.missions(ctx, rule); err == nil {
			a.Status.Recommendations = missions
		}
	}

	outcome.set(&a.Status.Conditions, a.Generation, r.Clock.Now())
	if !equality.Semantic.DeepEqual(before.Status, a.Status) {
		now := metav1.NewTime(r.Clock.Now())
		a.Status.LastUpdateTime = &now
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if patchErr := client.IgnoreNotFound(r.Client.Status().Patch(ctx, a, patch)); patchErr != nil && err == nil {
			err = fmt.Errorf("writing the status of analytics %s: %w", req, patchErr)
		}
	}

	return ctrl.Result{}, err
}

// recommenderOf returns the recommender of an Analytics without the settings that it does not have, and their keys. gocrane
// documented some for other types: they never had an effect.
func (r *AnalyticsReconciler) recommenderOf(a *analysisv1alpha1.Analytics) (out analysisv1alpha1.Recommender, ignored []string) {
	out = analysisv1alpha1.Recommender{Name: string(a.Spec.Type), Config: a.Spec.Config}
	out.Config, ignored = settings.SplitUnknown(out.Config, r.Settings().Check(out))
	return out, ignored
}

// analyticsCondition returns the Ready condition of an Analytics: that of its rule, with the keys of its config that have no
// effect.
func analyticsCondition(rule *analysisv1alpha1.RecommendationRule, ignored []string) condition {
	out := notReady(reasonNotEvaluated, fmt.Sprintf("RecommendationRule %s has not been evaluated yet.", rule.Name))
	if c := meta.FindStatusCondition(rule.Status.Conditions, analysisv1alpha1.ConditionReady); c != nil && c.ObservedGeneration == rule.Generation {
		out.status = c.Status == metav1.ConditionTrue
		out.reason = c.Reason
		out.message = fmt.Sprintf("RecommendationRule %s: %s", rule.Name, c.Message)
		switch c.Reason {
		case reasonSourceFailed, reasonReadFailed, reasonWriteFailed: // The message may contain addresses of servers.
			out.message = fmt.Sprintf("RecommendationRule %s failed and is tried again; its status has the error.", rule.Name)
		}

		if out.status {
			out.reason = reasonAnalyticsReady
		}
	}

	if len(ignored) > 0 {
		out.message += fmt.Sprintf(" The recommender has no settings for these keys of config, which are ignored: %s.", strings.Join(ignored, ", "))
	}

	return out
}

// missions returns the Recommendations of a rule in the form of the status of an Analytics, by namespace and name, at most
// maxMissions.
func (r *AnalyticsReconciler) missions(ctx context.Context, rule *analysisv1alpha1.RecommendationRule) ([]analysisv1alpha1.RecommendationMission, error) {
	var list analysisv1alpha1.RecommendationList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexRuleUID: string(rule.UID)}); err != nil {
		return nil, fmt.Errorf("listing the recommendations of rule %s: %w", rule.Name, err)
	}

	slices.SortFunc(list.Items, func(a, b analysisv1alpha1.Recommendation) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	var out []analysisv1alpha1.RecommendationMission
	for i := range list.Items[:min(len(list.Items), maxMissions)] {
		rec := &list.Items[i]
		m := analysisv1alpha1.RecommendationMission{
			ObjectReference: corev1.ObjectReference{
				APIVersion: analysisv1alpha1.GroupVersion.String(),
				Kind:       "Recommendation",
				Namespace:  rec.Namespace,
				Name:       rec.Name,
				UID:        rec.UID,
			},
			TargetRef:      &rec.Spec.TargetRef,
			Message:        truncateMessage(rec.Annotations[analysisv1alpha1.AnnotationMessage]),
			RecommenderRef: &analysisv1alpha1.Recommender{Name: string(rec.Spec.Type)},
		}

		if at, err := time.Parse(analysisv1alpha1.LastStartTimeLayout, rec.Annotations[analysisv1alpha1.AnnotationLastStartTime]); err == nil {
			m.LastStartTime = &metav1.Time{Time: at}
		}
		out = append(out, m)
	}

	return out, nil
}

// convert creates or updates the rule of an Analytics and returns it.
func (r *AnalyticsReconciler) convert(
	ctx context.Context, a *analysisv1alpha1.Analytics, recommender analysisv1alpha1.Recommender,
) (*analysisv1alpha1.RecommendationRule, error) {
	want := r.buildRule(a, recommender)
	have, err := r.findRule(ctx, a.UID)
	if err != nil {
		return nil, err
	}

	if have == nil {
		err := r.Client.Create(ctx, want)
		if !apierrors.IsAlreadyExists(err) {
			return want, wrapError(err, "creating rule %s", want.Name)
		}

		have = &analysisv1alpha1.RecommendationRule{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
			return nil, fmt.Errorf("reading rule %s: %w", want.Name, err)
		}

		if have.Annotations[analysisv1alpha1.AnnotationAnalyticsConversion] != string(a.UID) {
			// A rule of an earlier Analytics of this name is deleted as an orphan.
			return nil, fmt.Errorf("rule %s exists and was not created for this Analytics", want.Name)
		}
	}

	before := have.DeepCopy()
	have.Spec = want.Spec
	have.Labels = mergeMaps(have.Labels, want.Labels)
	if equality.Semantic.DeepEqual(before, have) {
		return have, nil
	}

	err = r.Client.Patch(ctx, have, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return have, wrapError(err, "updating rule %s", have.Name)
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
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexAnalyticsUID: string(uid)}); err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}

	if len(list.Items) == 0 {
		return nil, nil
	}

	return &list.Items[0], nil
}

// buildRule returns the rule that does what an Analytics requests. Its name contains the namespace, since rules are
// cluster-scoped.
func (r *AnalyticsReconciler) buildRule(a *analysisv1alpha1.Analytics, recommender analysisv1alpha1.Recommender) *analysisv1alpha1.RecommendationRule {
	prefix := a.Namespace + "-" + a.Name
	if room := validation.DNS1123LabelMaxLength - hashLength - 1; len(prefix) > room {
		prefix = strings.TrimRight(prefix[:room], "-.") // A name has no hyphen after a dot.
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
			RunInterval:       intervalOf(a.Spec.CompletionStrategy, r.minPeriod(a)),
			Recommenders:      []analysisv1alpha1.Recommender{recommender},
		},
	}

	// Analytics in Crane's namespace are those of the administrator, and select from all namespaces.
	if a.Namespace == r.Namespace {
		rule.Spec.NamespaceSelector = analysisv1alpha1.NamespaceSelector{Any: true}
	}

	return rule
}

// minPeriod returns the shortest period of an Analytics. That of a tenant is bounded, because each run reads all history.
func (r *AnalyticsReconciler) minPeriod(a *analysisv1alpha1.Analytics) time.Duration {
	if a.Namespace == r.Namespace {
		return 0
	}

	return analysisv1alpha1.MinAnalyticsPeriod
}

// intervalOf returns the interval of a completion strategy in the form of rules, the given one at least; empty for once.
func intervalOf(s *analysisv1alpha1.CompletionStrategy, minimum time.Duration) string {
	if s == nil || s.CompletionStrategyType != analysisv1alpha1.CompletionStrategyPeriodical {
		return ""
	}

	period := defaultPeriod
	if s.PeriodSeconds != nil && *s.PeriodSeconds > 0 {
		period = time.Duration(min(*s.PeriodSeconds, int64(time.Duration(1<<63-1)/time.Second))) * time.Second
	}

	return max(period, minimum).String()
}

// deleteOrphans deletes the rules of deleted Analytics. If the cache lacks the Analytics of a rule, it lists the metadata of Analytics from the
// API server, since a stale cache could lead to wrong deletions.
func (r *AnalyticsReconciler) deleteOrphans(ctx context.Context) error {
	var rules analysisv1alpha1.RecommendationRuleList
	if err := r.Client.List(ctx, &rules, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing rules: %w", err)
	}

	var suspects []*analysisv1alpha1.RecommendationRule
	for i := range rules.Items {
		uid := rules.Items[i].Annotations[analysisv1alpha1.AnnotationAnalyticsConversion]
		if uid == "" {
			continue
		}

		var cached analysisv1alpha1.AnalyticsList
		if err := r.Client.List(ctx, &cached, client.MatchingFields{indexAnalyticsUID: uid}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing analytics: %w", err)
		}

		if len(cached.Items) == 0 {
			suspects = append(suspects, &rules.Items[i])
		}
	}

	if len(suspects) == 0 {
		return nil
	}

	// The cache may lack a new Analytics, so the API server decides before a rule is deleted.
	var live metav1.PartialObjectMetadataList
	live.SetGroupVersionKind(analysisv1alpha1.GroupVersion.WithKind("AnalyticsList"))

	if err := r.Live.List(ctx, &live); err != nil {
		return fmt.Errorf("listing analytics: %w", err)
	}

	uids := map[string]bool{}
	for i := range live.Items {
		uids[string(live.Items[i].UID)] = true
	}

	for _, rule := range suspects {
		if uids[rule.Annotations[analysisv1alpha1.AnnotationAnalyticsConversion]] {
			continue
		}

		err := r.Client.Delete(ctx, rule.DeepCopy(), client.Preconditions{UID: &rule.UID, ResourceVersion: &rule.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting rule %s, whose Analytics is gone: %w", rule.Name, err)
		}
	}

	return nil
}

// analyticsUID returns the UID by which an Analytics or the rule of one is indexed.
func analyticsUID(o client.Object) []string {
	if _, ok := o.(*analysisv1alpha1.Analytics); ok {
		return []string{string(o.GetUID())}
	}

	if uid := o.GetAnnotations()[analysisv1alpha1.AnnotationAnalyticsConversion]; uid != "" {
		return []string{uid}
	}

	return nil
}
