// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fairqueue orders the requests of a controller by what their namespaces have used, and keeps workers free for namespaces that have used
// little, so that a namespace with many or expensive objects does not delay the others.
package fairqueue

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
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
	// heavyUse is the use from which a namespace must leave some workers to others.
	heavyUse = 2 * time.Second
	// parkTime is the time after which a request that found no worker is tried again, if no worker became free for it before.
	parkTime = 15 * time.Second
)

// Shares records the time that workers of a controller spend on each namespace. It is safe for concurrent use.
type Shares[request comparable] struct {
	clock     clock.PassiveClock
	namespace func(request) string

	mu      sync.Mutex
	used    map[string]use
	sweepAt time.Time
	// maxHeavy bounds the running requests of namespaces with heavyUse, which are in heavy. parked are the requests that it held back.
	maxHeavy      int
	heavy, parked map[request]bool
}

// use is a decaying sum of time as of a time.
type use struct {
	sum time.Duration
	at  time.Time
}

// New returns Shares; namespace returns the namespace that a request is charged to.
func New[request comparable](clk clock.PassiveClock, namespace func(request) string) *Shares[request] {
	return &Shares[request]{
		clock:     clk,
		namespace: namespace,
		used:      map[string]use{},
		heavy:     map[request]bool{},
		parked:    map[request]bool{},
	}
}

// ByNamespace returns Shares of a controller of a namespaced kind.
func ByNamespace(clk clock.PassiveClock) *Shares[reconcile.Request] {
	return New(clk, func(r reconcile.Request) string { return r.Namespace })
}

// Options returns the options of a controller with the queue that follows the shares. Its reconciler must be wrapped by Reconciler. At most heavy of
// the workers run requests of namespaces with heavyUse. A quarter suits reconcilers that write to the API server: more would take its CPUs from
// the requests of others without achieving more. Those that wait for Prometheus need more.
func (s *Shares[request]) Options(workers, heavy int) controller.TypedOptions[request] {
	s.maxHeavy = max(1, heavy)
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

// start reports whether a worker may run a request now; otherwise it is parked.
func (s *Shares[request]) start(r request) bool {
	namespace := s.namespace(r) // It may read a cache.
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.parked, r)
	if s.used[namespace].decayed(s.clock.Now()) < heavyUse {
		return true
	}

	if len(s.heavy) >= s.maxHeavy {
		s.parked[r] = true
		return false
	}

	s.heavy[r] = true
	return true
}

// done ends a request. If a worker became free for parked requests, it returns that of the namespace that used the least.
func (s *Shares[request]) done(r request) (next request, ok bool) {
	s.mu.Lock()
	if !s.heavy[r] {
		s.mu.Unlock()
		return next, false
	}

	delete(s.heavy, r)
	parked := slices.Collect(maps.Keys(s.parked))
	s.mu.Unlock()

	if len(parked) == 0 {
		return next, false
	}

	return slices.MinFunc(parked, func(a, b request) int { return cmp.Compare(s.steps(s.namespace(a)), s.steps(s.namespace(b))) }), true
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
	if o.Priority != nil {
		class = classOf(*o.Priority)
	}

	for _, item := range items {
		options := o
		options.Priority = new(q.priority(class, item))
		q.PriorityQueue.AddWithOpts(options, item)
	}
}

// classOf returns the priority without the steps of a namespace.
func classOf(priority int) int {
	if priority <= handler.LowPriority {
		return handler.LowPriority
	}

	return 0
}

func (q *queue[request]) priority(class int, item request) int {
	return class - q.shares.steps(q.shares.namespace(item))
}

// Get implements workqueue.TypedInterface.
func (q *queue[request]) Get() (item request, shutdown bool) {
	item, _, shutdown = q.GetWithPriority()
	return item, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue. Requests whose namespace has used workers since they were added go back with their
// present priority, and those that must leave the last workers to others wait.
func (q *queue[request]) GetWithPriority() (item request, priority int, shutdown bool) {
	for {
		item, priority, shutdown = q.PriorityQueue.GetWithPriority()
		if shutdown {
			return item, priority, true
		}

		o := priorityqueue.AddOpts{Priority: new(q.priority(classOf(priority), item))}
		if *o.Priority >= priority {
			if q.shares.start(item) {
				return item, priority, false
			}

			o.After = parkTime
		}

		q.PriorityQueue.AddWithOpts(o, item)
		q.PriorityQueue.Done(item)
	}
}

// Done implements workqueue.TypedInterface.
func (q *queue[request]) Done(item request) {
	q.PriorityQueue.Done(item)
	if next, ok := q.shares.done(item); ok {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, next)
	}
}
