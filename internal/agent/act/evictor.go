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
	// asked is how many evictions may wait: more than a node's own limit lets through within a window.
	asked = 16
	// stale is how long one may wait. What is asked later is decided anew.
	stale = 10 * time.Second
	// answersWithin bounds one request for an eviction, takenWithin all those for a slot of the budget.
	answersWithin, takenWithin = 5 * time.Second, 8 * time.Second
	// firstRest and lastRest bound the time without evictions after one that failed.
	firstRest, lastRest = 2 * time.Second, time.Minute
	// often is how often a pod is refused before that is believed.
	often = 3
	// idle is how often an evictor that nobody asks shows that it is there.
	idle = 10 * time.Second
)

// EvictConfig is what an Evictor needs.
type EvictConfig struct {
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
	cfg   EvictConfig
	queue chan ask

	failures int // in a row; Run's
	no       no  // the last, and Run's as well

	mu       sync.Mutex
	outcomes []Outcome // not more than were asked
}

// no is how often an API server has refused a pod for something other than its disruption budget.
type no struct {
	uid   string
	times int
}

type ask struct {
	eviction qos.Eviction
	at       time.Time
}

// NewEvictor returns an evictor that does nothing before Run.
func NewEvictor(cfg EvictConfig) *Evictor {
	return &Evictor{cfg: cfg, queue: make(chan ask, asked)}
}

// Name is that of its heartbeat.
func (e *Evictor) Name() string { return "evict" }

// Ask hands an eviction over and does not wait. It is false where too many wait already: then nothing comes of it.
func (e *Evictor) Ask(eviction qos.Eviction) bool {
	select {
	case e.queue <- ask{eviction, e.cfg.Clock.Now()}:
		return true
	default:
		return false
	}
}

// Drain returns the outcomes since the last time.
func (e *Evictor) Drain() []Outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.outcomes
	e.outcomes = nil
	return out
}

// Run works until ctx ends. What then waits is dropped.
func (e *Evictor) Run(ctx context.Context) error {
	ticker := e.cfg.Clock.NewTicker(idle)
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
			o := e.carryOut(ctx, a)
			o.Eviction, o.At = a.eviction, e.cfg.Clock.Now()
			e.mu.Lock()
			e.outcomes = append(e.outcomes, o)
			e.mu.Unlock()
		}
	}
}

func (e *Evictor) carryOut(ctx context.Context, a ask) Outcome {
	if waited := e.cfg.Clock.Since(a.at); waited > stale {
		return Outcome{Result: Failed, Why: "it has waited for " + waited.Round(time.Second).String()}
	}
	slot, o := e.take(ctx)
	if o.Result != "" {
		return o
	}
	asking, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	result, why, again, open := judge(e.cfg.Client.Evict(asking, request(a.eviction)))
	if result == Refused && again && !e.insists(a.eviction.Pod.UID) {
		result = Failed
	}
	o = Outcome{Result: result, Why: why}
	if !open {
		e.giveBack(ctx, slot)
	}
	if !again {
		e.failures, e.no = 0, no{}
		return o
	}
	o.Pause = e.rest()
	return o
}

// insists tells whether a pod was refused often enough, with pauses between, for another one to go in its place: what an API server or a
// webhook says while it starts is not its last word.
func (e *Evictor) insists(uid string) bool {
	if e.no.uid != uid {
		e.no = no{uid: uid}
	}
	e.no.times++
	return e.no.times >= often
}

// take gets a slot of the budget. Where there is none the outcome says why.
func (e *Evictor) take(ctx context.Context) (*Slot, Outcome) {
	if e.cfg.Budget == nil {
		return nil, Outcome{}
	}
	ctx, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	slot, err := e.cfg.Budget.Take(ctx)
	var used *BudgetError
	switch {
	case errors.As(err, &used):
		// All nodes that wait do not come back at once.
		return nil, Outcome{Result: Withheld, Why: err.Error(), Pause: min(max(used.Free, firstRest), lastRest) + rand.N(firstRest)}
	case err != nil:
		return nil, Outcome{Result: Failed, Why: "the cluster's budget of evictions cannot be asked: " + err.Error(), Pause: e.rest()}
	}
	return slot, Outcome{}
}

func (e *Evictor) giveBack(ctx context.Context, slot *Slot) {
	if slot == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	if err := slot.GiveBack(ctx); err != nil {
		e.cfg.Log.V(1).Info("Cannot give a slot of the budget of evictions back; it is free again when its time is over", "error", err.Error())
	}
}

// rest is longer with each failure in a row.
func (e *Evictor) rest() time.Duration {
	pause := min(firstRest<<min(e.failures, 10), lastRest)
	e.failures++
	return pause + rand.N(pause/4)
}
