// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// fakeEvictions is an API server with configurable answers.
type fakeEvictions struct {
	mu    sync.Mutex
	asked []*policyv1.Eviction
	err   func(ctx context.Context, name string) error
}

func (a *fakeEvictions) Evict(ctx context.Context, e *policyv1.Eviction) error {
	a.mu.Lock()
	a.asked = append(a.asked, e)
	err := a.err
	a.mu.Unlock()

	if err == nil {
		return nil
	}

	return err(ctx, e.Name)
}

func (a *fakeEvictions) names() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, e := range a.asked {
		out = append(out, e.Name)
	}

	return out
}

func oneBudget() error {
	err := apierrors.NewTooManyRequests("Cannot evict pod", 10)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	return err
}

// severalBudgets is the API server's error for a pod with two disruption budgets.
func severalBudgets() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
}

func evictionOf(name string, grace *time.Duration) qos.Eviction {
	e := qos.Eviction{Pod: qos.PodRef{UID: "uid-" + name, Namespace: "n", Name: name}, GraceOverride: grace, GracePeriod: 30 * time.Second, Resource: units.Memory, Rule: "a/b"}
	if grace != nil {
		e.GracePeriod = *grace
	}

	return e
}

// TestClassifyAnswer checks the meaning of each answer of an API server.
func TestClassifyAnswer(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err                 error
		want                Result
		pause, mayTerminate bool
		why                 string
	}{
		"yes":                {nil, Evicted, false, true, ""},
		"no such pod":        {apierrors.NewNotFound(pods, "p"), Gone, false, false, "not found"},
		"another UID":        {apierrors.NewConflict(pods, "p", errors.New("Precondition failed: UID in the precondition: a, UID in the object meta: b")), Gone, false, false, "another pod"},
		"another write":      {apierrors.NewConflict(pods, "p", errors.New("the ResourceVersion in the precondition does not match")), Failed, true, false, "changed at the same time"},
		"disruption budget":  {oneBudget(), Refused, false, false, "needs 2 healthy pods"},
		"two budgets":        {severalBudgets(), Refused, false, false, "more than one"},
		"busy":               {apierrors.NewTooManyRequests("too many requests", 1), Failed, true, false, "rejected the request"},
		"token expired":      {apierrors.NewUnauthorized("expired"), Failed, true, false, "rejected the request"},
		"no right":           {apierrors.NewForbidden(pods, "p", errors.New(`User "x" cannot create resource "pods/eviction" in API group ""`)), Failed, true, false, "not allowed"},
		"admission's no":     {apierrors.NewForbidden(pods, "p", errors.New("kept by a policy")), Refused, true, false, "kept by a policy"},
		"a webhook's no":     {apierrors.NewBadRequest("admission webhook denied it"), Refused, true, false, "webhook"},
		"internal error":     {apierrors.NewInternalError(errors.New("etcd")), Failed, true, true, "not answered"},
		"timeout":            {context.DeadlineExceeded, Failed, true, true, "deadline"},
		"connection refused": {fmt.Errorf("dial: %w", errors.New("refused")), Failed, true, true, "refused"},
	} {
		got := classifyAnswer(test.err)
		if got.result != test.want || got.pause != test.pause || got.mayTerminate != test.mayTerminate || !strings.Contains(got.reason, test.why) {
			t.Errorf("%s: classifyAnswer(%v) = %+v, want %s with a reason that has %q, pause %t, mayTerminate %t", name, test.err, got, test.want, test.why, test.pause, test.mayTerminate)
		}
	}
}

func runEvictor(t *testing.T, client EvictionClient, budget *Budget, clk *clocktesting.FakeClock) *Evictor {
	t.Helper()

	e := NewEvictor(EvictorConfig{Client: client, Budget: budget, Clock: clk, Log: logr.Discard(), Beat: func(string) {}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	return e
}

// drained waits for n outcomes.
func drained(t *testing.T, e *Evictor, n int) (out []EvictionOutcome) {
	t.Helper()

	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		out = append(out, e.Drain()...)
		return len(out) >= n, nil
	}); err != nil {
		t.Fatalf("Drain returned %d outcomes within a minute, want %d: %+v", len(out), n, out)
	}

	return out
}

var evictionEpoch = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// TestEvictor checks the UID precondition and grace period of evictions, each with one outcome.
func TestEvictor(t *testing.T) {
	client := &fakeEvictions{}
	e := runEvictor(t, client, nil, clocktesting.NewFakeClock(evictionEpoch))

	grace := 7 * time.Second
	if !e.Enqueue(evictionOf("a", &grace)) || !e.Enqueue(evictionOf("b", nil)) {
		t.Fatal("Enqueue = false with an empty queue, want both evictions to be queued")
	}

	out := drained(t, e, 2)
	if len(out) != 2 || out[0].Result != Evicted || out[0].Eviction.Pod.Name != "a" || out[1].Eviction.Pod.Name != "b" || out[0].Pause != 0 {
		t.Errorf("Drain returned %+v, want a, then b, both evicted without a pause", out)
	}

	a := client.asked[0]
	b := client.asked[1]

	if *a.DeleteOptions.GracePeriodSeconds != 7 || string(*a.DeleteOptions.Preconditions.UID) != "uid-a" || a.Namespace != "n" {
		t.Errorf("requested %+v, want pod n/a with UID uid-a and a grace period of 7s", a)
	}
	if b.DeleteOptions.GracePeriodSeconds != nil {
		t.Errorf("requested %+v, want the pod's own grace period", b.DeleteOptions)
	}
	if len(e.Drain()) > 0 {
		t.Error("the second Drain has outcomes, want each once")
	}
}

// TestEvictorHangs checks that a hanging API server blocks no caller and that stale requests are dropped.
func TestEvictorHangs(t *testing.T) {
	clk := clocktesting.NewFakeClock(evictionEpoch)
	release := make(chan struct{})
	client := &fakeEvictions{err: func(ctx context.Context, _ string) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-release:
			return nil
		}
	}}

	e := runEvictor(t, client, nil, clk)
	taken := 0
	for i := range 10 * evictionQueueSize {
		if e.Enqueue(evictionOf(fmt.Sprint("p", i), nil)) {
			taken++
		}
	}

	if taken > evictionQueueSize+1 {
		t.Errorf("%d evictions are queued, want at most %d", taken, evictionQueueSize+1)
	}

	clk.Step(maxWait + time.Second)
	close(release)

	out := drained(t, e, taken)
	late := 0
	for _, o := range out {
		if o.Result == Failed && strings.Contains(o.Reason, "waited") && o.Pause == 0 {
			late++
		}
	}

	if n := len(client.names()); len(out) != taken || late < taken-1 || n > 1 {
		t.Errorf("got %d outcomes, %d of them too late, with %d requests; want %d, all but one too late, and at most 1 request", len(out), late, n, taken)
	}
}

// TestEvictorPauses checks that pauses grow with consecutive failures and end with a success.
func TestEvictorPauses(t *testing.T) {
	client := &fakeEvictions{err: func(context.Context, string) error { return apierrors.NewServiceUnavailable("gone") }}
	e := runEvictor(t, client, nil, clocktesting.NewFakeClock(evictionEpoch))
	last := time.Duration(0)
	for i := range 12 {
		e.Enqueue(evictionOf("a", nil))
		o := drained(t, e, 1)[0]
		if o.Result != Failed || o.Pause < minPause || o.Pause > maxPause*5/4 || i > 0 && i < 4 && o.Pause <= last {
			t.Errorf("failure %d: outcome %+v after a pause of %s, want Failed with a longer pause of at most %s", i, o, last, maxPause*5/4)
		}

		last = o.Pause
	}

	client.mu.Lock()
	client.err = nil
	client.mu.Unlock()
	e.Enqueue(evictionOf("a", nil))

	if o := drained(t, e, 1)[0]; o.Result != Evicted || o.Pause != 0 {
		t.Errorf("after the recovery the outcome is %+v, want Evicted without a pause", o)
	}
}

// TestEvictorRefusals checks that a webhook's refusal is accepted the third time, and another pod is evicted only then.
func TestEvictorRefusals(t *testing.T) {
	client := &fakeEvictions{err: func(_ context.Context, name string) error {
		if name == "kept" {
			return apierrors.NewBadRequest("admission webhook denied it")
		}

		return nil
	}}

	e := runEvictor(t, client, nil, clocktesting.NewFakeClock(evictionEpoch))
	for i, want := range []Result{Failed, Failed, Refused, Refused} {
		e.Enqueue(evictionOf("kept", nil))
		if o := drained(t, e, 1)[0]; o.Result != want || o.Pause < minPause || !strings.Contains(o.Reason, "webhook") {
			t.Errorf("no %d: %+v, want %s", i+1, o, want)
		}
	}

	for i, want := range map[string]Result{"other": Evicted, "kept": Failed} {
		e.Enqueue(evictionOf("other", nil))
		drained(t, e, 1)
		e.Enqueue(evictionOf(i, nil))

		if o := drained(t, e, 1)[0]; o.Result != want {
			t.Errorf("%s after another answer: outcome %+v, want %s", i, o, want)
		}
	}
}

// TestOutcomes checks the effect of each outcome on the state.
func TestOutcomes(t *testing.T) {
	policy := qos.Policy{Limits: qos.DefaultLimits(), Rules: []qos.Rule{{
		Name: "a/b", Metric: "memory_total_usage", Threshold: 1000, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute,
		Action: qos.Action{Name: "x", Evict: &qos.EvictionSettings{}},
	}}}
	look := func(s *qos.State, second int) qos.Plan {
		at := evictionEpoch.Add(time.Duration(second) * time.Second)
		o := &qos.Observation{At: at, Node: qos.Node{CPUs: 4000, Memory: 4000}, Samples: map[string][]qos.Sample{"memory_total_usage": {{Value: 1500, At: at}}}}
		for i, name := range []string{"first", "second"} {
			p := qos.Pod{UID: "uid-" + name, Namespace: "n", Name: name, Class: qos.BestEffort, Priority: int32(i), Allowed: []string{"x"}, Grace: 30 * time.Second}
			p.UsedMemory.Value = 800
			p.UsedMemory.At = at
			o.Pods = append(o.Pods, p)
		}

		return qos.Decide(&policy, o, s)
	}

	for _, test := range []struct {
		result Result
		pause  time.Duration
		want   string // the next planned victim
		why    string
	}{
		{Evicted, 0, "", "close the gap"},
		{Gone, 0, "", "close the gap"},
		{Refused, 0, "second", ""},
		{Failed, 0, "first", ""},
		{Failed, time.Minute, "", "no pod is evicted for 1m0s: the API server"},
		{Withheld, time.Minute, "", "no pod is evicted for 1m0s: the API server"},
	} {
		var s qos.State
		plan := look(&s, 0)
		if len(plan.Evictions) != 1 || plan.Evictions[0].Pod.Name != "first" || plan.Evictions[0].GracePeriod != 30*time.Second {
			t.Fatalf("the first plan is %+v, want the eviction of pod first with 30s", plan)
		}

		s.BeginEviction(plan.Evictions[0], plan.At)
		for second := 1; second < 40; second++ {
			if waiting := look(&s, second); len(waiting.Evictions) > 0 {
				t.Fatalf("%s: while the answer is pending the plan evicts %+v, want none", test.result, waiting.Evictions)
			}
		}

		EvictionOutcome{Eviction: plan.Evictions[0], Result: test.result, At: evictionEpoch.Add(40 * time.Second), Reason: "the API server", Pause: test.pause}.Record(&s)
		next := look(&s, 40)
		got := ""
		if len(next.Evictions) > 0 {
			got = next.Evictions[0].Pod.Name
		}
		if got != test.want || !strings.Contains(next.Rules[0].Reason, test.why) {
			t.Errorf("after %s the plan evicts %q with reason %q, want %q and a reason that has %q", test.result, got, next.Rules[0].Reason, test.want, test.why)
		}

		if test.pause > 0 {
			if late := look(&s, 101); len(late.Evictions) != 1 || late.Evictions[0].Pod.Name != "first" {
				t.Errorf("after the pause the plan is %+v, want the eviction of pod first", late)
			}
		}
	}
}

// timeless removes write times from Leases, because the test clock differs from the server's.
type timeless struct {
	typedcoordinationv1.LeaseInterface
}

func (l timeless) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	out, err := l.LeaseInterface.Create(ctx, lease, o)
	if err == nil {
		out.ManagedFields = nil
	}

	return out, err
}

func (l timeless) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	out, err := l.LeaseInterface.Update(ctx, lease, o)
	if err == nil {
		out.ManagedFields = nil
	}

	return out, err
}

func newBudget(client *fake.Clientset, node string, slots int, clk *clocktesting.FakeClock) *Budget {
	return NewBudget(BudgetConfig{Leases: timeless{client.CoordinationV1().Leases("crane-system")}, Node: node, Slots: slots, Window: time.Minute, Clock: clk})
}

// TestBudget checks the number of slots within the window and that a released slot is free.
func TestBudget(t *testing.T) {
	client := fake.NewClientset()
	clk := clocktesting.NewFakeClock(time.Now())

	a := newBudget(client, "a", 3, clk)
	b := newBudget(client, "b", 3, clk)
	var slots []*Slot
	for i, from := range []*Budget{a, b, a} {
		slot, err := from.Take(t.Context())
		if err != nil {
			t.Fatalf("Take of slot %d: %v, want a slot", i, err)
		}

		slots = append(slots, slot)
		clk.Step(time.Second)
	}

	var used *BudgetError
	if _, err := b.Take(t.Context()); !errors.As(err, &used) || used.FreeIn < 55*time.Second || used.FreeIn > 57*time.Second || !strings.Contains(err.Error(), "budget of 3 evictions within 1m0s") {
		t.Errorf("a fourth: %v", err)
	}
	if err := slots[1].Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	if _, err := a.Take(t.Context()); err != nil {
		t.Errorf("one was given back: %v", err)
	}
	if _, err := a.Take(t.Context()); !errors.As(err, &used) {
		t.Errorf("a fifth: %v", err)
	}

	clk.Step(58 * time.Second)
	if _, err := b.Take(t.Context()); err != nil {
		t.Errorf("the first is a minute ago: %v", err)
	}
	if _, err := b.Take(t.Context()); !errors.As(err, &used) {
		t.Errorf("Take = %v, want a BudgetError: the second eviction is less than a minute ago", err)
	}
	if NewBudget(BudgetConfig{}) != nil {
		t.Error("NewBudget without slots returned a budget, want nil")
	}
}

// TestBudgetRace checks that one of several concurrent nodes gets the last slot.
func TestBudgetRace(t *testing.T) {
	client := fake.NewClientset()
	clk := clocktesting.NewFakeClock(time.Now())

	// Unlike a real API server, the fake's tracker accepts any version.
	client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).Name, errors.New("modified"))
	})

	var wg sync.WaitGroup
	var mu sync.Mutex
	got := 0
	for i := range 8 {
		wg.Go(func() {
			if _, err := newBudget(client, fmt.Sprint(i), 3, clk).Take(t.Context()); err == nil {
				mu.Lock()
				got++
				mu.Unlock()
			}
		})
	}

	wg.Wait()
	if got != 3 {
		t.Errorf("%d of 8 nodes got one of 3 slots, want 3", got)
	}
}

// TestBudgetGarbage checks that invalid Leases neither block a slot forever nor free a taken one.
func TestBudgetGarbage(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	at := func(d time.Duration) *metav1.MicroTime { return new(metav1.NewMicroTime(clk.Now().Add(d))) }
	for name, test := range map[string]struct {
		spec coordinationv1.LeaseSpec
		free bool
	}{
		"empty":             {coordinationv1.LeaseSpec{}, true},
		"free":              {coordinationv1.LeaseSpec{HolderIdentity: new(""), RenewTime: at(0)}, true},
		"without a time":    {coordinationv1.LeaseSpec{HolderIdentity: new("x")}, true},
		"taken":             {coordinationv1.LeaseSpec{HolderIdentity: new("x"), RenewTime: at(-30 * time.Second)}, false},
		"taken for longer":  {coordinationv1.LeaseSpec{HolderIdentity: new("x"), RenewTime: at(-90 * time.Second), LeaseDurationSeconds: new(int32(120))}, false},
		"over":              {coordinationv1.LeaseSpec{HolderIdentity: new("x"), RenewTime: at(-61 * time.Second), LeaseDurationSeconds: new(int32(60))}, true},
		"for years":         {coordinationv1.LeaseSpec{HolderIdentity: new("x"), RenewTime: at(-2 * time.Hour), LeaseDurationSeconds: new(int32(1 << 30))}, true},
		"in years":          {coordinationv1.LeaseSpec{HolderIdentity: new("x"), RenewTime: at(10000 * time.Hour), LeaseDurationSeconds: new(int32(60))}, true},
		"a little ahead":    {coordinationv1.LeaseSpec{HolderIdentity: new("x"), RenewTime: at(5 * time.Second), LeaseDurationSeconds: new(int32(60))}, false},
		"negative duration": {coordinationv1.LeaseSpec{HolderIdentity: new("x"), RenewTime: at(-30 * time.Second), LeaseDurationSeconds: new(int32(-5))}, false},
	} {
		client := fake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: slotPrefix + "0", Labels: map[string]string{slotLabel: "true"}}, Spec: test.spec,
		})

		if _, err := newBudget(client, "a", 1, clk).Take(t.Context()); (err == nil) != test.free {
			t.Errorf("%s: %v, want free %t", name, err, test.free)
		}
	}

	// A Lease without its label still exists.
	client := fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: slotPrefix + "0"}})
	var used *BudgetError
	if _, err := newBudget(client, "a", 1, clk).Take(t.Context()); !errors.As(err, &used) {
		t.Error(err)
	}
}

// TestBudgetClock checks that a node with a wrong clock evicts no pod and releases the slot.
func TestBudgetClock(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		clk := clocktesting.NewFakeClock(time.Now())
		client := fake.NewClientset()
		client.PrependReactor("create", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			lease := a.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
			lease.Namespace = "crane-system"
			if err := client.Tracker().Add(lease); err != nil {
				t.Error(err)
			}

			lease.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager, Time: new(metav1.NewTime(clk.Now().Add(-off)))}}
			return true, lease, nil
		})

		b := NewBudget(BudgetConfig{Leases: client.CoordinationV1().Leases("crane-system"), Node: "a", Slots: 1, Window: time.Minute, Clock: clk})
		if _, err := b.Take(t.Context()); err == nil || !strings.Contains(err.Error(), "clock") {
			t.Errorf("clock off by %s: Take = %v, want an error that names the clock", off, err)
		}
		if lease, err := client.CoordinationV1().Leases("crane-system").Get(t.Context(), slotPrefix+"0", metav1.GetOptions{}); err != nil || lease.Spec.HolderIdentity != nil {
			t.Errorf("clock off by %s: the lease is %+v, %v; want a free slot", off, lease, err)
		}
	}
}

// TestEvictorBudget checks that an eviction needs a slot, that a refused one releases it and that without access to Leases no pod is
// evicted.
func TestEvictorBudget(t *testing.T) {
	client := fake.NewClientset()
	clk := clocktesting.NewFakeClock(time.Now())
	api := &fakeEvictions{err: func(_ context.Context, name string) error {
		if name == "kept" {
			return oneBudget()
		}

		return nil
	}}

	e := runEvictor(t, api, newBudget(client, "a", 1, clk), clk)
	for _, name := range []string{"kept", "a", "b"} {
		e.Enqueue(evictionOf(name, nil))
	}

	out := drained(t, e, 3)
	if out[0].Result != Refused || out[1].Result != Evicted || out[2].Result != Withheld || out[2].Pause < minPause || !strings.Contains(out[2].Reason, "budget of 1 evictions") {
		t.Errorf("outcomes are %+v, want Refused, Evicted, and Withheld with a pause and the budget as reason", out)
	}
	if got := strings.Join(api.names(), " "); got != "kept a" {
		t.Errorf("requested evictions of %q, want %q: none without a slot", got, "kept a")
	}

	client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no right"))
	})
	e.Enqueue(evictionOf("c", nil))

	if o := drained(t, e, 1)[0]; o.Result != Failed || o.Pause < minPause || !strings.Contains(o.Reason, "budget of evictions cannot be asked") {
		t.Errorf("without access to leases the outcome is %+v, want Failed with a pause and the budget as reason", o)
	}
	if n := len(api.names()); n != 2 {
		t.Errorf("%d evictions were requested, want 2: none without access to leases", n)
	}
}

// TestBlockedPods checks that a pod that must not be evicted now is refused without a request, and that evictions pause if that is unknown.
func TestBlockedPods(t *testing.T) {
	api := &fakeEvictions{}
	clk := clocktesting.NewFakeClock(evictionEpoch)
	e := NewEvictor(EvictorConfig{Client: api, Clock: clk, Log: logr.Discard(), Beat: func(string) {}, Blocked: func(_ context.Context, pod qos.PodRef) (string, error) {
		switch pod.Name {
		case "last":
			return "it is the last", nil
		case "unknown":
			return "", errors.New("no answer")
		}

		return "", nil
	}})

	for name, want := range map[string]Result{"last": Refused, "unknown": Failed, "one": Evicted} {
		o := e.execute(t.Context(), evictionRequest{evictionOf(name, nil), clk.Now()})
		if o.Result != want || (o.Pause > 0) != (want == Failed) || (o.Reason == "") != (want == Evicted) {
			t.Errorf("%s: outcome %+v, want %s; a pause only if failed, a reason unless evicted", name, o, want)
		}
	}

	if got := api.names(); len(got) != 1 || got[0] != "one" {
		t.Errorf("requested evictions of %v, want only pod one", got)
	}
}
