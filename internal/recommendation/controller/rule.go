// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
)

// RuleReconciler runs the rounds of RecommendationRules.
type RuleReconciler struct {
	// Client reads rules and Recommendations from the cache and writes to the API server.
	Client client.Client
	// Live reads Recommendations again after a conflict.
	Live    client.Reader
	Lister  *workload.Lister
	Kinds   KindResolver
	History profile.Source
	// Pricer may be nil: then recommendations say nothing of money.
	Pricer Pricer

	// Settings returns the settings in force. Each pass takes them once.
	Settings func() Settings
	// Namespace is where recommendations for cluster-scoped targets go.
	Namespace string
	// ListTimeout bounds one list of targets, HistoryTimeout the reading of history of one pass.
	ListTimeout, HistoryTimeout time.Duration
	// Workers is how many Recommendations are written at once.
	Workers int
	// PassSize is how many targets one pass takes on, whole namespaces at a time.
	PassSize int

	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.PassiveClock
	// Backoff spaces the tries of a pass that failed as a whole.
	Backoff workqueue.TypedRateLimiter[ctrl.Request]

	progress progressStore
}

// pass is one pass of a round of one rule, filled in step by step. Most rounds have one pass; those of many targets have
// several, with the other rules' passes in between.
type pass struct {
	// rule is a copy; its status is written back when the pass ends.
	rule *analysisv1alpha1.RecommendationRule
	now  time.Time
	// number is that of this round; a round that is tried again keeps it.
	number   int32
	schedule schedule
	// catchUp tells that the rule is not due. It then evaluates what was too young for the last round, and what somebody
	// has asked for, and keeps the number and the time of that round.
	catchUp bool
	// upToDate tells that a rule which is not due has nothing left of its last round; wait is how long until it is due.
	upToDate     bool
	wait         time.Duration
	recommenders []*configuredRecommender
	// problems are what is wrong with parts of the rule while the rest of it works.
	problems []error

	selection  selection
	stats      passStats
	existing   map[identity]*analysisv1alpha1.Recommendation
	duplicates []*analysisv1alpha1.Recommendation
	progress   *progress
	// tasks are what this pass deals with, left what is for the next ones.
	tasks, remaining []task
	data             *passData
	proposals        []proposal
}

// outcome ends a round.
type outcome struct {
	// condition becomes the rule's Ready condition; without a kind it is left as it is.
	condition condition
	// retry asks for another try of the same round after a back-off, otherwise the next one begins after the wait;
	// a wait of 0 waits for the rule to change.
	retry bool
	wait  time.Duration
	// morePasses asks for the next pass, after the other rules had their turn, or after the wait.
	morePasses bool
}

// Reconcile implements reconcile.Reconciler: one round of a rule if it is due.
func (r *RuleReconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	rule, err := r.read(ctx, req)
	if err != nil {
		if apierrors.IsNotFound(err) {
			r.Backoff.Forget(req)
			r.Metrics.forgetRule(req.Name)
			r.progress.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading rule %s: %w", req.Name, err)
	}
	if rule.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // Its Recommendations are the garbage collector's.
	}
	rd := &pass{rule: rule.DeepCopy(), now: r.Clock.Now(), number: rule.Status.RunNumber + 1}
	defer func() { err = errors.Join(err, r.patchStatus(ctx, rule, rd.rule)) }()
	for _, step := range []func(context.Context, *pass) *outcome{r.plan, r.loadTargets, r.gather, r.decide, r.act} {
		end := step(ctx, rd)
		if ctx.Err() != nil {
			return ctrl.Result{}, nil // Stopping: the next leader begins where this one ended.
		}
		if end != nil {
			return r.conclude(req, rd, end), nil
		}
	}
	return r.conclude(req, rd, r.afterPass(rd)), nil
}

// read returns the rule from the cache; where it is due, from the API server, because the cache may not have seen the
// end of the last round.
func (r *RuleReconciler) read(ctx context.Context, req ctrl.Request) (*analysisv1alpha1.RecommendationRule, error) {
	rule := &analysisv1alpha1.RecommendationRule{}
	if err := r.Client.Get(ctx, req.NamespacedName, rule); err != nil {
		return nil, err
	}
	when, err := parseSchedule(rule)
	if err != nil {
		return rule, nil //nolint:nilerr // It is said in the rule's status.
	}
	if wait, never := when.wait(rule, r.Clock.Now()); (never || wait > 0) && !hasYoungTargets(rule) {
		return rule, nil
	}
	fresh := &analysisv1alpha1.RecommendationRule{}
	if err := r.Live.Get(ctx, req.NamespacedName, fresh); err != nil {
		return nil, err
	}
	return fresh, nil
}

// plan finds out whether the rule is due, and what it runs.
func (r *RuleReconciler) plan(_ context.Context, rd *pass) *outcome {
	when, err := parseSchedule(rd.rule)
	if err != nil {
		return &outcome{condition: notReady(reasonInvalidInterval, err.Error())}
	}
	rd.schedule = when
	wait, never := when.wait(rd.rule, rd.now)
	if never || wait > 0 {
		rd.catchUp, rd.number, rd.wait = true, rd.rule.Status.RunNumber, wait
		rd.upToDate = !hasYoungTargets(rd.rule)
	}
	if at := rd.rule.Status.LastUpdateTime; at != nil {
		r.Metrics.recordEvaluation(rd.rule, at.Time)
	}
	settings := r.Settings()
	named := map[string]bool{}
	for i, recommender := range rd.rule.Spec.Recommenders {
		one, err := settings.configure(recommender)
		if err == nil && named[recommender.Name] {
			err = fmt.Errorf("recommender %q stands there twice; the first one counts", recommender.Name)
		}
		if err != nil {
			rd.problems = append(rd.problems, fmt.Errorf("spec.recommenders[%d]: %w", i, err))
			continue
		}
		named[recommender.Name] = true
		rd.recommenders = append(rd.recommenders, &one)
	}
	slices.SortStableFunc(rd.recommenders, func(a, b *configuredRecommender) int {
		return cmp.Compare(evaluationOrder(a.name), evaluationOrder(b.name))
	})
	if len(rd.recommenders) == 0 && len(rd.problems) > 0 {
		return &outcome{condition: notReady(reasonInvalidConfig, joinErrors(rd.problems))}
	}
	return nil
}

// afterPass ends a pass in which everything was written that can be, and the round with it where nothing is left.
func (r *RuleReconciler) afterPass(rd *pass) *outcome {
	if len(rd.remaining) > 0 {
		return &outcome{morePasses: true, wait: time.Millisecond}
	}
	if wait, waits := rd.progress.nextRetry(r.Clock.Now()); waits {
		end := &outcome{morePasses: true, wait: wait}
		if !rd.upToDate { // What was asked for beside a round says nothing of the round.
			end.condition = rd.failed(reasonWriteFailed)
		}
		return end
	}
	r.progress.forget(rd.rule.Name)
	return r.complete(rd)
}

// failed says which targets could not be dealt with.
func (rd *pass) failed(reason string) condition {
	errs := rd.progress.errors()
	return notReady(reason, fmt.Sprintf("%d of %d targets: %s", len(errs), len(errs)+len(rd.progress.done), joinErrors(errs)))
}

// complete ends a round in which everything was written.
func (r *RuleReconciler) complete(rd *pass) *outcome {
	now := r.Clock.Now()
	if !rd.catchUp {
		rd.rule.Status.LastUpdateTime = &metav1.Time{Time: now}
		rd.rule.Status.RunNumber = rd.number
		r.Metrics.recordEvaluation(rd.rule, now)
	}
	end := &outcome{wait: rd.schedule.next(rd.rule, now)}
	if rd.upToDate {
		return &outcome{wait: rd.wait} // The condition is that of the round, which this was not.
	}
	switch {
	case len(rd.progress.failed) > 0:
		end.condition = rd.failed(reasonTargetsFailed)
	case len(rd.selection.failures) > 0:
		end.condition = notReady(reasonSelectorFailed, joinErrors(rd.selection.failures))
		if rd.schedule.once {
			end.wait = retryIncomplete
		}
	case len(rd.problems) > 0:
		end.condition = notReady(reasonInvalidConfig, joinErrors(rd.problems))
	case rd.stats.young > 0:
		end.condition = condition{conditionType: analysisv1alpha1.ConditionReady, status: true, reason: reasonTargetsYoung, message: rd.stats.String()}
		if wait := max(rd.stats.oldEnoughAt.Sub(now), time.Second); end.wait == 0 || wait < end.wait {
			end.wait = wait
		}
	default:
		end.condition = condition{conditionType: analysisv1alpha1.ConditionReady, status: true, reason: reasonRoundCompleted, message: rd.stats.String()}
	}
	return end
}

// conclude writes the outcome into the rule's status, tells of a failure, and says when to come back.
func (r *RuleReconciler) conclude(req ctrl.Request, rd *pass, end *outcome) ctrl.Result {
	if c := end.condition; c.conditionType != "" && c.set(&rd.rule.Status.Conditions, rd.rule.Generation, r.Clock.Now()) && !c.status {
		r.Events.Eventf(rd.rule, nil, corev1.EventTypeWarning, c.reason, "Evaluate", "%s", c.message)
	}
	if end.retry {
		return ctrl.Result{RequeueAfter: r.Backoff.When(req)}
	}
	r.Backoff.Forget(req)
	return ctrl.Result{RequeueAfter: end.wait}
}

// patchStatus writes what became of the pass. A rule that somebody has changed meanwhile keeps their change: the condition
// says of which generation it speaks, and the next pass begins anew.
func (r *RuleReconciler) patchStatus(ctx context.Context, before, after *analysisv1alpha1.RecommendationRule) error {
	if ctx.Err() != nil || equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil //nolint:nilerr // A manager that stops writes nothing; the next leader does.
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
				return nil // Another rule of the same name has nothing to do with this pass.
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

func notReady(reason, message string) condition {
	return condition{conditionType: analysisv1alpha1.ConditionReady, reason: reason, message: message}
}
