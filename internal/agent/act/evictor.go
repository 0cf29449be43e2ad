// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/backoff"
	disruption "crane.io/crane/internal/kube/eviction"
	"crane.io/crane/internal/kube/slimclient"
	"crane.io/crane/pkg/qos"
)

const (
	// evictionQueueSize is more than a node's own limit allows within a window.
	evictionQueueSize = 16
	// maxWait is how long an action may be queued; a later one is decided again.
	maxWait = 10 * time.Second
	// evictionTimeout bounds an eviction request, budgetTimeout all requests for a slot of the budget.
	evictionTimeout = 5 * time.Second
	budgetTimeout   = 8 * time.Second
	// minPause and maxPause bound the time without evictions after a failed one.
	minPause = 2 * time.Second
	maxPause = time.Minute
	// maxRefusals is the number of refusals after which another pod is evicted instead.
	maxRefusals = 3
	// idleBeat is the heartbeat interval of an idle manager.
	idleBeat = 10 * time.Second
)

// EvictorConfig configures an Evictor.
type EvictorConfig struct {
	Client EvictionClient
	// Blocked returns why a pod is not evicted now although its node's view allows it; empty if it may be. Nil for no check.
	Blocked func(context.Context, qos.PodRef) (string, error)
	// Budget is the cluster's budget; nil for none.
	Budget *Budget
	Clock  clock.WithTicker
	Log    logr.Logger
	// Beat is called after each eviction and while idle.
	Beat func(step string)
}

// Evictor requests evictions from the API server, one after the other, so that a slow API server never stalls the loop. Each enqueued
// eviction has exactly one outcome. Its methods are safe for concurrent use.
type Evictor struct {
	cfg   EvictorConfig
	queue chan evictionRequest

	failures int      // consecutive; used by Run only
	refused  refusals // the last one; used by Run only

	mu       sync.Mutex
	outcomes []EvictionOutcome // at most one per enqueued eviction
}

// refusals counts refusals of a pod for reasons other than its disruption budget.
type refusals struct {
	uid   string
	count int
}

type evictionRequest struct {
	eviction    qos.Eviction
	requestedAt time.Time
}

// NewEvictor returns an evictor to be started with Run.
func NewEvictor(cfg EvictorConfig) *Evictor {
	return &Evictor{cfg: cfg, queue: make(chan evictionRequest, evictionQueueSize)}
}

// Name implements Manager.
func (e *Evictor) Name() string { return "evict" }

// Enqueue queues an eviction without waiting. It returns false, and drops the eviction, if the queue is full.
func (e *Evictor) Enqueue(eviction qos.Eviction) bool {
	select {
	case e.queue <- evictionRequest{eviction, e.cfg.Clock.Now()}:
		return true
	default:
		return false
	}
}

// Drain returns the outcomes since the last call.
func (e *Evictor) Drain() []EvictionOutcome {
	e.mu.Lock()
	defer e.mu.Unlock()

	out := e.outcomes
	e.outcomes = nil
	return out
}

// Run executes evictions until ctx ends and drops those still queued.
func (e *Evictor) Run(ctx context.Context) error {
	ticker := e.cfg.Clock.NewTicker(idleBeat)
	defer ticker.Stop()

	for {
		e.cfg.Beat("evict")
		select {
		case <-ctx.Done():
			return nil

		case <-ticker.C():

		case a := <-e.queue:
			if ctx.Err() != nil {
				return nil
			}

			o := e.execute(ctx, a)
			o.Eviction = a.eviction
			o.At = e.cfg.Clock.Now()
			e.mu.Lock()
			e.outcomes = append(e.outcomes, o)
			e.mu.Unlock()
		}
	}
}

func (e *Evictor) execute(ctx context.Context, a evictionRequest) EvictionOutcome {
	if waited := e.cfg.Clock.Since(a.requestedAt); waited > maxWait {
		return EvictionOutcome{Result: Failed, Reason: "it has waited for " + waited.Round(time.Second).String()}
	}

	if o := e.checkBlocked(ctx, a.eviction.Pod); o.Result != "" {
		return o
	}

	slot, o := e.takeSlot(ctx)
	if o.Result != "" {
		return o
	}

	evictCtx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()

	answer := classifyAnswer(e.cfg.Client.Evict(evictCtx, newEviction(a.eviction)))
	if answer.result == Refused && answer.pause && !e.refusedRepeatedly(a.eviction.Pod.UID) {
		answer.result = Failed
	}

	// A slot stays taken while the pod may be terminating.
	o = EvictionOutcome{Result: answer.result, Reason: answer.reason}

	if !answer.mayTerminate {
		e.releaseSlot(ctx, slot)
	}

	if !answer.pause {
		e.failures = 0
		e.refused = refusals{}
		return o
	}

	o.Pause = e.nextPause()
	return o
}

// checkBlocked returns the outcome for a pod that must not be evicted now, or for which that is unknown.
func (e *Evictor) checkBlocked(ctx context.Context, pod qos.PodRef) EvictionOutcome {
	if e.cfg.Blocked == nil {
		return EvictionOutcome{}
	}

	ctx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()

	why, err := e.cfg.Blocked(ctx, pod)
	switch {
	case err != nil:
		return EvictionOutcome{Result: Failed, Reason: err.Error(), Pause: e.nextPause()}
	case why != "":
		e.failures = 0
		return EvictionOutcome{Result: Refused, Reason: why}
	}

	return EvictionOutcome{}
}

// refusedRepeatedly reports whether a pod was refused often enough, with pauses, to evict another one instead: a starting API server or
// webhook may refuse at first.
func (e *Evictor) refusedRepeatedly(uid string) bool {
	if e.refused.uid != uid {
		e.refused = refusals{uid: uid}
	}

	e.refused.count++
	return e.refused.count >= maxRefusals
}

// takeSlot takes a slot of the budget; if it fails the outcome has the reason.
func (e *Evictor) takeSlot(ctx context.Context) (*Slot, EvictionOutcome) {
	if e.cfg.Budget == nil {
		return nil, EvictionOutcome{}
	}

	ctx, cancel := context.WithTimeout(ctx, budgetTimeout)
	defer cancel()

	slot, err := e.cfg.Budget.Take(ctx)
	var used *BudgetError
	switch {
	case errors.As(err, &used):
		// Random, so that waiting nodes do not retry at the same time.
		return nil, EvictionOutcome{Result: Withheld, Reason: err.Error(), Pause: min(max(used.FreeIn, minPause), maxPause) + rand.N(minPause)}
	case err != nil:
		return nil, EvictionOutcome{Result: Failed, Reason: "the cluster's budget of evictions cannot be asked: " + err.Error(), Pause: e.nextPause()}
	}

	return slot, EvictionOutcome{}
}

func (e *Evictor) releaseSlot(ctx context.Context, slot *Slot) {
	if slot == nil {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, budgetTimeout)
	defer cancel()

	if err := slot.Release(ctx); err != nil {
		e.cfg.Log.V(1).Info("could not release a slot of the eviction budget; it expires", "err", err)
	}
}

// nextPause grows with each consecutive failure.
func (e *Evictor) nextPause() time.Duration {
	e.failures++
	pause := backoff.Exponential{First: minPause, Last: maxPause}.After(e.failures)

	return pause + rand.N(pause/4)
}

// Result is the result of an eviction.
type Result string

// Results.
const (
	// Evicted: the pod is terminating.
	Evicted Result = "evicted"
	// Gone: the pod no longer exists, or another one has its name.
	Gone Result = "gone"
	// Refused: the pod may not be evicted now, as by a disruption budget; another pod may be evicted in its place.
	Refused Result = "refused"
	// Withheld: the cluster's budget is used up; no other pod is evicted.
	Withheld Result = "withheld"
	// Failed: the API server did not answer or rejected the request for reasons unrelated to the pod; no other pod is evicted.
	Failed Result = "failed"
)

// EvictionOutcome is an eviction and its result.
type EvictionOutcome struct {
	Eviction qos.Eviction
	Result   Result
	At       time.Time
	// Reason is the API server's message; empty if evicted.
	Reason string
	// Pause is how long no pod of this node is evicted; 0 for none.
	Pause time.Duration
}

// Record records the outcome of an eviction begun with BeginEviction.
func (o EvictionOutcome) Record(s *qos.State) {
	switch o.Result {
	case Evicted:
		s.RecordEviction(o.Eviction.Pod, o.At, o.Eviction.GracePeriod)
	case Gone:
		s.RecordGone(o.Eviction.Pod, o.At)
	case Refused:
		s.RecordRefusal(o.Eviction.Pod, o.At)
	default:
		s.RecordFailure(o.Eviction.Pod)
	}

	if o.Pause > 0 {
		s.PauseEvictions(o.At, o.Pause, fmt.Sprintf("no pod is evicted for %s: %s", o.Pause.Round(100*time.Millisecond), o.Reason))
	}
}

// EvictionClient requests evictions from an API server.
type EvictionClient interface {
	Evict(ctx context.Context, eviction *policyv1.Eviction) error
}

// APIEvictionClient uses the eviction subresource of policy/v1, which respects disruption budgets. It does not retry: the next measurement
// decides again.
type APIEvictionClient struct{ Client slimclient.Interface }

// Evict implements EvictionClient.
func (a APIEvictionClient) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	return a.Client.CoreV1().RESTClient().Post().Namespace(eviction.Namespace).Resource("pods").Name(eviction.Name).SubResource("eviction").
		MaxRetries(0).Body(eviction).Do(ctx).Error()
}

// newEviction returns an eviction of exactly this pod: a pod of the same name, as of a StatefulSet, has another UID.
func newEviction(e qos.Eviction) *policyv1.Eviction {
	uid := types.UID(e.Pod.UID)
	out := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: e.Pod.Namespace, Name: e.Pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}

	if e.GraceOverride != nil {
		out.DeleteOptions.GracePeriodSeconds = new(int64(e.GraceOverride.Seconds()))
	}

	return out
}

// answer is the meaning of the API server's answer to an eviction request.
type answer struct {
	result Result
	reason string
	// pause means that this node should evict nothing for a while.
	pause bool
	// mayTerminate means that the pod may be terminating, even after an error.
	mayTerminate bool
}

// classifyAnswer interprets the error of an eviction request.
func classifyAnswer(err error) answer {
	if why, blocked := disruption.BlockedByPDB(err); blocked {
		return answer{result: Refused, reason: why}
	}

	switch {
	case err == nil:
		return answer{result: Evicted, mayTerminate: true}
	case apierrors.IsNotFound(err):
		return answer{result: Gone, reason: err.Error()}
	case apierrors.IsConflict(err) && isUIDMismatch(err):
		return answer{result: Gone, reason: "another pod has its name: " + err.Error()}
	case apierrors.IsConflict(err):
		return answer{result: Failed, reason: "it was changed at the same time: " + err.Error(), pause: true}

	case apierrors.IsTooManyRequests(err), apierrors.IsUnauthorized(err):
		return answer{result: Failed, reason: "the API server rejected the request: " + err.Error(), pause: true}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), missingRight):
		// Unrelated to the pod. A starting API server returns this for roles it has not loaded yet.
		return answer{result: Failed, reason: "it is not allowed: " + err.Error(), pause: true}

	case disruption.OutcomeUnknown(err):
		return answer{
			result:       Failed,
			reason:       "the API server has not answered: " + err.Error(),
			pause:        true,
			mayTerminate: true,
		}
	}

	// A statement about this pod, as from a webhook.
	return answer{result: Refused, reason: err.Error(), pause: true}
}

// missingRight is part of the authorizer's message for missing permissions, unlike those of admission.
const missingRight = "cannot create resource"

// isUIDMismatch reports whether the API server or its store found another pod of the same name.
func isUIDMismatch(err error) bool {
	return strings.Contains(err.Error(), "UID in the precondition") || strings.Contains(err.Error(), "UID in precondition")
}

const (
	// endTries bounds the attempts of an action at the end of the agent, endPause is the first pause between them: three and a half
	// seconds in total.
	endTries = 4
	endPause = 500 * time.Millisecond
)

// RetryAtEnd retries a final action of the agent, which no later run would repeat. It returns the last error.
func RetryAtEnd(ctx context.Context, clk clock.Clock, do func(context.Context) error) error {
	for try, pause := 1, endPause; ; try, pause = try+1, 2*pause {
		err := do(ctx)
		if err == nil || try == endTries || ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return err // A retry would not help.
		}

		select {
		case <-ctx.Done():
			return err
		case <-clk.After(pause):
		}
	}
}
