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
	// evictionQueueSize is how many evictions may wait: more than a node's own limit lets through within a window.
	evictionQueueSize = 16
	// maxWait is how long one may wait. What is asked later is decided anew.
	maxWait = 10 * time.Second
	// evictionTimeout bounds one request for an eviction, budgetTimeout all those for a slot of the budget.
	evictionTimeout, budgetTimeout = 5 * time.Second, 8 * time.Second
	// minPause and maxPause bound the time without evictions after one that failed.
	minPause, maxPause = 2 * time.Second, time.Minute
	// maxRefusals is how often a pod is refused before that is believed.
	maxRefusals = 3
	// idleBeat is how often an evictor that nobody asks shows that it is there.
	idleBeat = 10 * time.Second
)

// EvictorConfig is what an Evictor needs.
type EvictorConfig struct {
	Client EvictionClient
	// Budget is the cluster's; nil for none.
	Budget *Budget
	Clock  clock.WithTicker
	Log    logr.Logger
	// Beat is called after each eviction, and while there is none.
	Beat func(step string)
}

// Evictor asks the API server to evict pods, one after the other, beside the loop: one that is slow never stalls it. Each Ask has exactly
// one Outcome. Its methods are safe for concurrent use.
type Evictor struct {
	cfg   EvictorConfig
	queue chan evictionRequest

	failures int      // in a row; Run's
	refused  refusals // the last, and Run's as well

	mu       sync.Mutex
	outcomes []EvictionOutcome // not more than were asked
}

// refusals is how often an API server has refused a pod for something other than its disruption budget.
type refusals struct {
	uid   string
	count int
}

type evictionRequest struct {
	eviction    qos.Eviction
	requestedAt time.Time
}

// NewEvictor returns an evictor that does nothing before Run.
func NewEvictor(cfg EvictorConfig) *Evictor {
	return &Evictor{cfg: cfg, queue: make(chan evictionRequest, evictionQueueSize)}
}

// Name is that of its heartbeat.
func (e *Evictor) Name() string { return "evict" }

// Enqueue hands an eviction over and does not wait. It is false where too many wait already: then nothing comes of it.
func (e *Evictor) Enqueue(eviction qos.Eviction) bool {
	select {
	case e.queue <- evictionRequest{eviction, e.cfg.Clock.Now()}:
		return true
	default:
		return false
	}
}

// Drain returns the outcomes since the last time.
func (e *Evictor) Drain() []EvictionOutcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.outcomes
	e.outcomes = nil
	return out
}

// Run works until ctx ends. What then waits is dropped.
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

// refusedRepeatedly tells whether a pod was refused often enough, with pauses between, for another one to go in its place: what an API server or a
// webhook says while it starts is not its last word.
func (e *Evictor) refusedRepeatedly(uid string) bool {
	if e.refused.uid != uid {
		e.refused = refusals{uid: uid}
	}
	e.refused.count++
	return e.refused.count >= maxRefusals
}

// takeSlot gets a slot of the budget. Where there is none the outcome says why.
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
		// All nodes that wait do not come back at once.
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
		e.cfg.Log.V(1).Info("Cannot give a slot of the budget of evictions back; it is free again when its time is over", "error", err.Error())
	}
}

// nextPause is longer with each failure in a row.
func (e *Evictor) nextPause() time.Duration {
	pause := min(minPause<<min(e.failures, 10), maxPause)
	e.failures++
	return pause + rand.N(pause/4)
}
