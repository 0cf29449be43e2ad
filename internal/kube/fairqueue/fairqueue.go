// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fairqueue orders the requests of a controller by what their namespaces have used, so that a namespace with many or expensive objects
// delays the others by the requests that run, and not by those that wait.
package fairqueue

import (
	"context"
	"math"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// halfLife is the time in which recorded use decays to its half.
	halfLife = time.Minute
	// unit is the use that costs the first step of priority; each doubling costs another one.
	unit = 10 * time.Millisecond
	// maxSteps bounds the loss of priority. It is less than the distance to handler.LowPriority.
	maxSteps = 50
)

// Shares records the time that workers of a controller spend on each namespace. It is safe for concurrent use.
type Shares[request comparable] struct {
	clock     clock.PassiveClock
	namespace func(request) string

	mu      sync.Mutex
	used    map[string]use
	sweepAt time.Time
}

// use is a decaying sum of time as of a time.
type use struct {
	sum time.Duration
	at  time.Time
}

// New returns Shares; namespace returns the namespace that a request is charged to.
func New[request comparable](clk clock.PassiveClock, namespace func(request) string) *Shares[request] {
	return &Shares[request]{clock: clk, namespace: namespace, used: map[string]use{}}
}

// ByNamespace returns Shares of a controller of a namespaced kind.
func ByNamespace(clk clock.PassiveClock) *Shares[reconcile.Request] {
	return New(clk, func(r reconcile.Request) string { return r.Namespace })
}

// Options returns the options of a controller with the queue that follows the shares. Its reconciler must be wrapped by Reconciler.
func (s *Shares[request]) Options(workers int) controller.TypedOptions[request] {
	return controller.TypedOptions[request]{MaxConcurrentReconciles: workers, NewQueue: s.newQueue}
}

func (s *Shares[request]) newQueue(name string, limiter workqueue.TypedRateLimiter[request]) workqueue.TypedRateLimitingInterface[request] {
	inner := priorityqueue.New(name, func(o *priorityqueue.Opts[request]) { o.RateLimiter = limiter })
	return &queue[request]{PriorityQueue: inner, shares: s}
}

// Reconciler returns a reconciler that records the time that it takes.
func (s *Shares[request]) Reconciler(inner reconcile.TypedReconciler[request]) reconcile.TypedReconciler[request] {
	return reconcile.TypedFunc[request](func(ctx context.Context, r request) (reconcile.Result, error) {
		began := s.clock.Now()
		result, err := inner.Reconcile(ctx, r)
		s.record(s.namespace(r), s.clock.Since(began))
		// Otherwise the queue keeps the low priority of a request from the start of the process.
		result.Priority = new(0)
		return result, err
	})
}

func (s *Shares[request]) record(namespace string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.used[namespace] = use{s.used[namespace].decayed(now) + d, now}
	if now.Before(s.sweepAt) {
		return
	}
	s.sweepAt = now.Add(halfLife)
	for ns, u := range s.used {
		if u.decayed(now) < unit/10 {
			delete(s.used, ns)
		}
	}
}

func (u use) decayed(now time.Time) time.Duration {
	return time.Duration(float64(u.sum) * math.Exp2(-max(0, now.Sub(u.at).Seconds())/halfLife.Seconds()))
}

// steps returns by how much the priority of a namespace is reduced.
func (s *Shares[request]) steps(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.used[namespace]
	if !ok {
		return 0
	}
	return min(maxSteps, int(math.Log2(1+float64(u.decayed(s.clock.Now()))/float64(unit))))
}

// queue is a priority queue that reduces the priority of a request by the steps of its namespace.
type queue[request comparable] struct {
	priorityqueue.PriorityQueue[request]
	shares *Shares[request]
}

// Add implements workqueue.TypedInterface.
func (q *queue[request]) Add(item request) { q.AddWithOpts(priorityqueue.AddOpts{}, item) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue[request]) AddAfter(item request, d time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: d}, item)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue[request]) AddRateLimited(item request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, item)
}

// AddWithOpts implements priorityqueue.PriorityQueue. Of a given priority only the class counts, low or not: it may be that of an earlier
// addition.
func (q *queue[request]) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	class := 0
	if o.Priority != nil && *o.Priority <= handler.LowPriority {
		class = handler.LowPriority
	}
	for _, item := range items {
		one := o
		one.Priority = new(class - q.shares.steps(q.shares.namespace(item)))
		q.PriorityQueue.AddWithOpts(one, item)
	}
}
