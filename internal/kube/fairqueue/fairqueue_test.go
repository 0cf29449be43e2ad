// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestOf(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// fixture is a queue whose reconciler takes a second for each request.
type fixture struct {
	clock      *testingclock.FakePassiveClock
	shares     *Shares[reconcile.Request]
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request]
	reconciler reconcile.Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()

	f := &fixture{clock: testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))}
	f.shares = ByNamespace(f.clock)
	f.queue = f.shares.Options(1, 1).NewQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(f.queue.ShutDown)
	f.reconciler = f.shares.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		f.clock.SetTime(f.clock.Now().Add(time.Second))
		return reconcile.Result{RequeueAfter: time.Minute}, errors.New("kept")
	}))

	return f
}

// next reconciles the next request and returns its namespace.
func (f *fixture) next(t *testing.T) string {
	t.Helper()

	r, _ := f.queue.Get()
	result, err := f.reconciler.Reconcile(t.Context(), r)
	if result.RequeueAfter != time.Minute || err == nil || *result.Priority != 0 {
		t.Fatalf("Reconcile = %+v, %v, want the result and the error of the reconciler", result, err)
	}

	f.queue.Done(r)
	return r.Namespace
}

// TestGet_LeastUsedNamespaceFirst: requests of a namespace that has used workers wait for those of others, however many they are and
// however they are added.
func TestGet_LeastUsedNamespaceFirst(t *testing.T) {
	f := newFixture(t)
	f.queue.Add(requestOf("hostile", "first"))
	f.next(t)
	adds := []func(reconcile.Request){
		f.queue.Add,
		func(r reconcile.Request) { f.queue.AddAfter(r, 0) },
		func(r reconcile.Request) {
			f.queue.(priorityqueue.PriorityQueue[reconcile.Request]).AddWithOpts(priorityqueue.AddOpts{}, r)
		},
	}

	for i := range 100 {
		adds[i%3](requestOf("hostile", fmt.Sprint(i)))
	}

	for i, add := range adds {
		add(requestOf(fmt.Sprint("honest-", i), "a"))
	}

	for range adds {
		if ns := f.next(t); ns == "hostile" {
			t.Error("next is a request of the namespace that used a worker, want one of the other")
		}
	}

	if ns := f.next(t); ns != "hostile" {
		t.Errorf("%s comes next, want the waiting namespace", ns)
	}
}

// TestGet_UseAfterAddition: requests that were added before their namespace used workers lose their place when it does.
func TestGet_UseAfterAddition(t *testing.T) {
	f := newFixture(t)
	for i := range 100 {
		f.queue.Add(requestOf("hostile", fmt.Sprint(i)))
	}

	f.queue.Add(requestOf("honest", "a"))
	if first, second := f.next(t), f.next(t); first != "hostile" || second != "honest" {
		t.Errorf("%s and %s come first, want the honest namespace after one request of the hostile one", first, second)
	}
}

// TestGet_WorkerStaysFree: namespaces that have used much leave a worker to others, and get the next one that becomes free.
func TestGet_WorkerStaysFree(t *testing.T) {
	synctest.Test(t, testWorkerStaysFree)
}

func testWorkerStaysFree(t *testing.T) {
	f := newFixture(t)
	f.queue = f.shares.Options(2, 1).NewQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(f.queue.ShutDown)

	for _, namespace := range []string{"hostile-a", "hostile-b"} {
		f.shares.record(namespace, heavyUse)
	}

	got := make(chan reconcile.Request, 1)
	get := func() {
		r, _ := f.queue.Get()
		got <- r
	}

	await := func(want string) reconcile.Request {
		t.Helper()

		select {
		case r := <-got:
			if r.Namespace != want {
				t.Errorf("a worker runs %s, want %s", r.Namespace, want)
			}

			return r

		case <-time.After(parkTime / 2):
			t.Fatalf("no worker runs %s", want)
			return reconcile.Request{}
		}
	}

	f.queue.Add(requestOf("hostile-a", "long"))
	go get()
	long := await("hostile-a")
	f.queue.Add(requestOf("hostile-b", "waits"))
	go get()
	synctest.Wait()

	select {
	case r := <-got:
		t.Fatalf("the last worker runs %s, want it kept free", r)
	default:
	}

	f.queue.Add(requestOf("honest", "a"))
	f.queue.Done(await("honest"))
	f.queue.Done(long)
	go get()
	await("hostile-b")

	if len(f.shares.heavy) != 1 || len(f.shares.parked) != 0 {
		t.Errorf("running %v, parked %v, want one running and none parked", f.shares.heavy, f.shares.parked)
	}
}

// TestGet_UseDecays: a namespace gets its priority back, and is forgotten.
func TestGet_UseDecays(t *testing.T) {
	f := newFixture(t)
	f.queue.Add(requestOf("a", "first"))
	f.next(t)
	before := f.shares.steps("a")
	f.clock.SetTime(f.clock.Now().Add(20 * halfLife))

	if after := f.shares.steps("a"); before != 6 || after != 0 {
		t.Errorf("%d steps after a second of use, %d after 20 minutes, want 6 and 0", before, after)
	}

	f.queue.Add(requestOf("b", "first"))
	f.next(t)

	if len(f.shares.used) != 1 {
		t.Errorf("%d namespaces are kept, want 1", len(f.shares.used))
	}
}

// TestGet_LowPriority: what is found at the start of the process waits for what changes, also if the latter's namespace has used much.
func TestGet_LowPriority(t *testing.T) {
	f := newFixture(t)
	for range 5 {
		f.queue.Add(requestOf("busy", "first"))
		f.next(t)
	}

	low := handler.LowPriority
	f.queue.(priorityqueue.PriorityQueue[reconcile.Request]).AddWithOpts(priorityqueue.AddOpts{Priority: &low}, requestOf("idle", "old"))
	f.queue.Add(requestOf("busy", "changed"))

	if ns := f.next(t); ns != "busy" {
		t.Errorf("%s comes first, want what has changed", ns)
	}
}
