// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/component/tracing"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
)

// RuleReconciler evaluates the targets of RecommendationRules, batch by batch.
type RuleReconciler struct {
	// Client reads rules and Recommendations from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live    client.Reader
	Lister  *workload.Lister
	Kinds   KindResolver
	History profile.Source
	// Reaction is that of Config.
	Reaction bool
	// Pricer may be nil: then Recommendations have no savings.
	Pricer Pricer

	// Settings returns the settings in force. Each batch calls it once.
	Settings func() Settings
	// Namespace holds the Recommendations of cluster-scoped targets.
	Namespace string
	// ListTimeout bounds one list of targets, HistoryTimeout the reading of history in one batch.
	ListTimeout, HistoryTimeout time.Duration
	// Workers is the number of Recommendations that are written at the same time.
	Workers int
	// BatchSize is the number of targets of one batch, rounded to whole namespaces.
	BatchSize int

	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.PassiveClock
	// Backoff spaces the retries of a batch that failed as a whole.
	Backoff workqueue.TypedRateLimiter[ctrl.Request]

	progress progressStore
}

// outcome is the result of a batch.
type outcome struct {
	// condition becomes the Ready condition of the rule; without a type the rule keeps its condition.
	condition condition
	// completed is the time at which the run ended, and number its number; zero while it has not ended.
	completed time.Time
	number    int32
	targets   int32
	// retry requests the same batch again after a backoff; otherwise the rule is reconciled again after wait, or when it
	// changes if wait is 0.
	retry bool
	wait  time.Duration
}

// batchError ends a batch with a False Ready condition.
type batchError struct {
	reason string
	retry  bool
	error
}

// Reconcile implements reconcile.Reconciler. It runs one batch of a rule if the rule is due.
func (r *RuleReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rule, err := r.read(ctx, req)
	if apierrors.IsNotFound(err) {
		r.Backoff.Forget(req)
		r.Metrics.forgetRule(req.Name)
		r.progress.forget(req.Name)

		return ctrl.Result{}, nil
	}

	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading rule %s: %w", req.Name, err)
	}

	if rule.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // The garbage collector deletes its Recommendations.
	}

	end, err := r.runBatch(ctx, rule)
	if ctx.Err() != nil {
		return ctrl.Result{}, nil //nolint:nilerr // the next leader starts where this one ended
	}

	if failure := (batchError{}); errors.As(err, &failure) {
		end = outcome{condition: notReady(failure.reason, failure.Error()), retry: failure.retry}
	}

	after := rule.DeepCopy()
	result := r.conclude(req, after, end)
	return result, r.patchStatus(ctx, rule, after)
}

// runBatch evaluates the next targets of a rule and writes their Recommendations. Nothing is written unless everything was
// read. All errors are a batchError.
func (r *RuleReconciler) runBatch(ctx context.Context, rule *analysisv1alpha1.RecommendationRule) (_ outcome, err error) {
	ctx, span := tracing.Start(ctx, "recommendation.pass", "rule", rule.Name)
	defer func() { tracing.End(span, err) }()

	if at := rule.Status.LastUpdateTime; at != nil {
		r.Metrics.recordEvaluation(rule, at.Time)
	}

	b, err := planBatch(rule, r.Settings(), r.Clock.Now())
	if err != nil {
		return outcome{}, err
	}

	found, err := existingRecommendations(ctx, r.Client, rule, r.Namespace)
	if err != nil {
		return outcome{}, batchError{reasonReadFailed, true, err}
	}

	progress := r.progress.get(rule, b.number)
	if b.upToDate && !found.anyRequested() && len(progress.failed) == 0 {
		r.progress.forget(rule.Name)
		return outcome{wait: b.wait}, nil
	}

	var targets selection
	if len(b.recommenders) > 0 {
		if targets, err = r.selectTargets(ctx, rule); err != nil {
			return outcome{}, batchError{reasonReadFailed, true, err}
		}
	}

	work := b.split(b.tasks(targets, found, progress), max(1, r.BatchSize))
	gatherCtx, gatherSpan := tracing.Start(ctx, "recommendation.gather")
	data, err := r.gather(gatherCtx, b, targets.readable(work.tasks))
	tracing.End(gatherSpan, err)

	if err != nil {
		return outcome{}, err
	}

	_, decideSpan := tracing.Start(ctx, "recommendation.decide")
	proposals := b.decide(work.tasks, targets, data)
	tracing.End(decideSpan, nil)

	if ctx.Err() != nil {
		return outcome{}, nil // The process is stopping; nothing was written.
	}

	actCtx, actSpan := tracing.Start(ctx, "recommendation.act")
	defer actSpan.End()

	progress.record(r.act(actCtx, b, proposals, b.obsolete(work, targets, found)), r.Clock.Now())
	return r.finish(ctx, b, work, targets, progress), nil
}

// read returns the rule from the cache. A rule that is due is read from the API server, because the cache may lack the end
// of the last run.
func (r *RuleReconciler) read(ctx context.Context, req ctrl.Request) (*analysisv1alpha1.RecommendationRule, error) {
	rule := &analysisv1alpha1.RecommendationRule{}
	if err := r.Client.Get(ctx, req.NamespacedName, rule); err != nil {
		return nil, err
	}

	when, invalid := parseSchedule(rule)
	wait, never := when.wait(rule, r.Clock.Now())
	due := !never && wait <= 0 || hasYoungTargets(rule)
	if invalid == nil && due { // planBatch reports an invalid interval.
		rule = &analysisv1alpha1.RecommendationRule{}
		return rule, r.Live.Get(ctx, req.NamespacedName, rule)
	}

	return rule, nil
}

// finish returns the outcome of a batch that wrote everything it could, and of the run if it was the last batch.
func (r *RuleReconciler) finish(ctx context.Context, b batch, work batchWork, targets selection, progress *progress) outcome {
	if len(work.remaining) > 0 {
		return outcome{wait: time.Millisecond}
	}

	now := r.Clock.Now()
	forSelectors, waits := progress.recordSelectors(targets.failures, b.schedule.interval, now)
	if wait, waits := progress.nextRetry(now); waits {
		end := outcome{wait: wait}
		if !b.upToDate { // A requested evaluation does not change the condition of the run.
			end.condition = progress.failedCondition(reasonWriteFailed)
		}

		return end
	}

	if waits {
		end := outcome{wait: forSelectors}
		if !b.catchUp {
			end.condition = notReady(reasonReadFailed, joinErrors(targets.failures))
		}

		return end
	}

	r.progress.forget(b.rule.Name)
	targets.missing = r.missingNamespaces(ctx, b.rule.Spec.NamespaceSelector)

	end := b.complete(work.stats, targets, progress, now)
	if !end.completed.IsZero() {
		r.Metrics.recordEvaluation(b.rule, end.completed)
	}

	return end
}

// conclude writes an outcome into the status of the rule, emits an event about a failure and schedules the next batch.
func (r *RuleReconciler) conclude(req ctrl.Request, rule *analysisv1alpha1.RecommendationRule, end outcome) ctrl.Result {
	if !end.completed.IsZero() {
		rule.Status.LastUpdateTime = &metav1.Time{Time: end.completed}
		rule.Status.RunNumber = end.number
		rule.Status.Targets = &end.targets
	}

	if c := end.condition; c.conditionType != "" && c.set(&rule.Status.Conditions, rule.Generation, r.Clock.Now()) && !c.status {
		r.Events.Eventf(rule, nil, corev1.EventTypeWarning, c.reason, "Evaluate", "%s", c.message)
	}

	if end.retry {
		return ctrl.Result{RequeueAfter: r.Backoff.When(req)}
	}

	r.Backoff.Forget(req)
	return ctrl.Result{RequeueAfter: end.wait}
}

// patchStatus writes the status of a rule. If the rule has changed meanwhile, the change is kept: the condition names the
// generation that it is about, and the next batch evaluates the change.
func (r *RuleReconciler) patchStatus(ctx context.Context, before, after *analysisv1alpha1.RecommendationRule) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}

	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		to := before.DeepCopy()
		to.Status = after.Status

		err := r.Client.Status().Patch(ctx, to, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			fresh := &analysisv1alpha1.RecommendationRule{}
			if getErr := r.Live.Get(ctx, client.ObjectKeyFromObject(before), fresh); getErr != nil {
				return getErr
			}

			if fresh.UID != before.UID {
				return nil // The rule was replaced by another one of the same name.
			}

			before = fresh
		}

		return err
	})

	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of rule %s: %w", before.Name, err)
	}

	return nil
}
