// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/pkg/qos"
)

const (
	// evictionQueueSize is more than a node's own limit allows within a window.
	evictionQueueSize = 16
	// maxWait is how long an action may be queued; a later one is decided again.
	maxWait = 10 * time.Second
	// evictionTimeout bounds an eviction request, budgetTimeout all requests for a slot of the budget.
	evictionTimeout, budgetTimeout = 5 * time.Second, 8 * time.Second
	// minPause and maxPause bound the time without evictions after a failed one.
	minPause, maxPause = 2 * time.Second, time.Minute
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
			o.Eviction, o.At = a.eviction, e.cfg.Clock.Now()
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
	asking, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	result, why, again, open := classifyAnswer(e.cfg.Client.Evict(asking, newEviction(a.eviction)))
	if result == Refused && again && !e.refusedRepeatedly(a.eviction.Pod.UID) {
		result = Failed
	}
	o = EvictionOutcome{Result: result, Reason: why}
	if !open {
		e.releaseSlot(ctx, slot)
	}
	if !again {
		e.failures, e.refused = 0, refusals{}
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
		e.cfg.Log.V(1).Info("failed to release a slot of the eviction budget; it expires", "error", err.Error())
	}
}

// nextPause grows with each consecutive failure.
func (e *Evictor) nextPause() time.Duration {
	pause := min(minPause<<min(e.failures, 10), maxPause)
	e.failures++
	return pause + rand.N(pause/4)
}
