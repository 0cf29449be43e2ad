// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// patience is the timeout of operations that take a moment.
const patience = 60 * time.Second

// testRunnable is a runnable that records its start and its end.
type testRunnable struct {
	name    string
	server  *fakeAPIServer
	leader  bool
	started chan struct{}
	// stuck ignores the end of its context.
	stuck chan struct{}
}

func (f *fakeAPIServer) runnable(name string, leader bool) *testRunnable {
	return &testRunnable{name: name, server: f, leader: leader, started: make(chan struct{})}
}

func (t *testRunnable) NeedLeaderElection() bool { return t.leader }

func (t *testRunnable) Start(ctx context.Context) error {
	t.server.note(t.name)
	close(t.started)
	<-ctx.Done()

	if t.stuck != nil {
		<-t.stuck
	}

	t.server.note("end-" + t.name)
	return nil
}

// fakeWebhookServer replaces a webhook server.
type fakeWebhookServer struct{ *testRunnable }

func (fakeWebhookServer) Register(string, http.Handler)   {}
func (fakeWebhookServer) StartedChecker() healthz.Checker { return healthz.Ping }
func (fakeWebhookServer) WebhookMux() *http.ServeMux      { return nil }

var _ webhook.Server = fakeWebhookServer{}

// fixture is a manager as Run builds it, with runnables of the test.
type fixture struct {
	probedManager
	lock   *lease
	cancel context.CancelFunc
	ended  chan error
	clock  *clocktesting.FakeClock
	// running returns the context that the manager was started with.
	running func() context.Context
}

// recordingManager is a manager that records the context that it is started with.
type recordingManager struct {
	manager.Manager
	started chan context.Context
}

func (r recordingManager) Start(ctx context.Context) error {
	r.started <- ctx
	return r.Manager.Start(ctx)
}

func startFixture(t *testing.T, m *fakeAPIServer, shutdown time.Duration, configure func(*Options), add ...manager.Runnable) *fixture {
	t.Helper()

	o := NewOptions()
	o.MetricsBindAddress, o.HealthProbeBindAddress = "0", "0"
	o.ShutdownTimeout = shutdown
	if configure != nil {
		configure(o)
	}

	// A long deadline: it does not end leadership in these tests.
	o.LeaderElection = LeaderElection{Enabled: true, LeaseDuration: 300 * time.Second, RenewDeadline: 200 * time.Second, RetryPeriod: 100 * time.Millisecond}
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(context.WithoutCancel(t.Context()), logr.Discard()))

	lock, err := newLease(m.config(), o)
	if err != nil {
		t.Fatal(err)
	}

	h, err := newManager(ctx, m.config(), o, lock)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := h.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}

	for _, r := range add {
		if err := h.Add(r); err != nil {
			t.Fatal(err)
		}
	}

	recording := recordingManager{h.Manager, make(chan context.Context, 1)}
	h.Manager = recording
	l := &fixture{
		probedManager: h, lock: lock, cancel: cancel, ended: make(chan error, 1), clock: clocktesting.NewFakeClock(time.Unix(0, 0)),
		running: func() context.Context { return <-recording.started },
	}
	go func() { l.ended <- start(ctx, h, o.ShutdownDelay, l.clock, lock.lost) }()

	t.Cleanup(func() {
		cancel()
		lock.close()
	})

	return l
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()

	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waiting for %s: not within %s, want it", what, patience)
	}
}

func (l *fixture) waitEnd(t *testing.T) error {
	t.Helper()

	select {
	case err := <-l.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("the manager has not ended within %s, want it to", patience)
		return nil
	}
}

// expectOrder fails unless the entries are in the record in that order.
func expectOrder(t *testing.T, record string, words ...string) {
	t.Helper()

	rest := " " + record + " "
	for _, word := range words {
		_, after, found := strings.Cut(rest, " "+word+" ")
		if !found {
			t.Fatalf("record %q has no %s in its place, want the order %v", record, word, words)
		}

		rest = " " + after
	}
}

// TestRun_Order checks the order of start and stop that the comment of Run describes, with a runnable that is added while others run.
func TestRun_Order(t *testing.T) {
	m := newFakeAPIServer(t)
	hook := fakeWebhookServer{m.runnable("webhook", false)}
	every := m.runnable("every", false)
	leading := m.runnable("leading", true)

	// Added in reverse order.
	l := startFixture(t, m, patience, nil, leading, every, hook)
	await(t, "the leader's work", leading.started)
	await(t, "the work of every replica", every.started)
	expectOrder(t, m.noted(), "webhook", "every", "elected", "leading")
	expectOrder(t, m.noted(), "list", "every")

	late := m.runnable("late", false)
	lateLeading := m.runnable("late-leading", true)
	for _, p := range []*testRunnable{late, lateLeading} {
		if err := l.Add(p); err != nil {
			t.Fatal(err)
		}

		await(t, "a part that was added later", p.started)
	}

	l.cancel()
	if err := l.waitEnd(t); err != nil {
		t.Errorf("an orderly stop ends with %v, want nil", err)
	}

	expectOrder(t, m.noted(), "end-every", "end-webhook")
	expectOrder(t, m.noted(), "end-leading", "released")
	expectOrder(t, m.noted(), "end-late-leading", "released")

	if m.holder() != "" {
		t.Errorf("the lease is held by %s, want it released", m.holder())
	}
}

// TestRun_Standby checks that runnables for every replica run without the lease, and those of the leader do not, until the
// lease is free.
func TestRun_Standby(t *testing.T) {
	m := newFakeAPIServer(t)
	first := m.runnable("first", true)
	one := startFixture(t, m, patience, nil, first)
	await(t, "the first", first.started)
	every := m.runnable("every", false)
	second := m.runnable("second", true)
	two := startFixture(t, m, patience, nil, every, second)
	await(t, "the work of every replica", every.started)

	for l, want := range map[*fixture]string{one: "[+]role-leader ok", two: "[+]role-standby ok"} {
		if page := l.probePage(t, "/readyz?verbose"); !strings.Contains(page, want) {
			t.Errorf("readyz says %q, want %s in it", page, want)
		}
	}

	select {
	case <-second.started:
		t.Error("a second replica leads, want one leader")
	default:
	}

	one.cancel()
	if err := one.waitEnd(t); err != nil {
		t.Error(err)
	}

	await(t, "the second", second.started)
	expectOrder(t, m.noted(), "end-first", "released", "elected", "second")
}

// probePage returns a page of the probes.
func (l *fixture) probePage(t *testing.T, path string) string {
	t.Helper()

	w := httptest.NewRecorder()
	l.probes.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Body.String()
}

// TestRun_ShutdownDelay checks that a replica that receives a signal is not ready, and serves webhooks and leads until the delay has passed.
func TestRun_ShutdownDelay(t *testing.T) {
	m := newFakeAPIServer(t)
	hook := fakeWebhookServer{m.runnable("webhook", false)}
	leading := m.runnable("leading", true)
	l := startFixture(t, m, patience, func(o *Options) { o.ShutdownDelay = time.Minute }, leading, hook)
	await(t, "the leader's work", leading.started)

	if page := l.probePage(t, "/readyz/shutdown"); page != "ok" {
		t.Errorf("/readyz/shutdown before the signal = %q, want ok", page)
	}

	l.cancel()
	for deadline := time.Now().Add(patience); !l.clock.HasWaiters(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("no delay has begun within %s of the signal, want one", patience)
		}
	}

	if page := l.probePage(t, "/readyz/shutdown"); !strings.Contains(page, "shutting down") {
		t.Errorf("/readyz/shutdown after the signal = %q, want shutting down", page)
	}
	if err := l.running().Err(); err != nil {
		t.Errorf("the context of the manager has ended with %v during the delay, parts %s, want it open", err, m.noted())
	}

	l.clock.Step(time.Minute)
	if err := l.waitEnd(t); err != nil {
		t.Error(err)
	}

	expectOrder(t, m.noted(), "end-leading", "released")
}

// TestRun_StolenLease checks that the leader's contexts end with the lease and that Run returns an error although a runnable does not
// stop; the lease is not released.
func TestRun_StolenLease(t *testing.T) {
	m := newFakeAPIServer(t)
	leading := m.runnable("leading", true)
	stuck := m.runnable("stuck", true)
	stuck.stuck = make(chan struct{})
	t.Cleanup(func() { close(stuck.stuck) })
	l := startFixture(t, m, patience, nil, leading, stuck)
	await(t, "the leader's work", leading.started)
	await(t, "the leader's work", stuck.started)
	m.steal("thief")

	if err := l.waitEnd(t); err == nil || !strings.Contains(err.Error(), "the lease craned was taken by thief") {
		t.Errorf("start ended with %v, want an error that names the thief", err)
	}

	deadline := time.Now().Add(patience)
	for !strings.Contains(m.noted(), "end-leading") {
		if time.Now().After(deadline) {
			t.Fatalf("the leader's work goes on for %s after it lost the lease, want it stopped", patience)
		}

		runtime.Gosched()
	}

	if m.holder() != "thief" {
		t.Errorf("the lease is held by %q, want the thief", m.holder())
	}
}

// TestRun_ShutdownTimeout checks that a runnable that does not stop delays an orderly shutdown by no more than the timeout.
func TestRun_ShutdownTimeout(t *testing.T) {
	m := newFakeAPIServer(t)
	stuck := m.runnable("stuck", true)
	stuck.stuck = make(chan struct{})
	t.Cleanup(func() { close(stuck.stuck) })
	l := startFixture(t, m, 200*time.Millisecond, nil, stuck)
	await(t, "the leader's work", stuck.started)
	l.cancel()

	if err := l.waitEnd(t); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start with a runnable that does not end = %v, want context.DeadlineExceeded", err)
	}
}

// TestRun_NoLeaks checks that repeated starts and stops leak no goroutines.
func TestRun_NoLeaks(t *testing.T) {
	var before int
	for i := range 4 {
		m := newFakeAPIServer(t)
		leading := m.runnable("leading", true)
		l := startFixture(t, m, patience, nil, leading, m.runnable("every", false))
		await(t, "the leader's work", leading.started)
		l.cancel()

		if err := l.waitEnd(t); err != nil {
			t.Fatal(err)
		}

		l.lock.close()
		l.GetHTTPClient().CloseIdleConnections()
		m.stop()

		if i == 0 {
			before = settledGoroutines(t, 0) // With what the first one starts for the whole process.
		}
	}

	if after := settledGoroutines(t, before); after > before {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, want the %d of before:\n%s", after, before, buf[:runtime.Stack(buf, true)])
	}
}

// settledGoroutines returns the number of goroutines when it has fallen to want, or, for want 0, has not changed for a second.
func settledGoroutines(t *testing.T, want int) int {
	t.Helper()

	began := time.Now()
	last := runtime.NumGoroutine()
	since := began
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for range tick.C {
		now := runtime.NumGoroutine()
		switch {
		case want > 0 && now <= want, want == 0 && now == last && time.Since(since) > time.Second, time.Since(began) > patience:
			return now
		case now != last:
			last = now
			since = time.Now()
		}
	}

	return last
}

// TestProbes checks that checks can be requested one by one, that a failing check fails the page, and that names are unique.
func TestProbes(t *testing.T) {
	elected := make(chan struct{})
	h := probedManager{probes: newProbes(elected)}
	l := &fixture{probedManager: h}

	sick := errors.New("no certificate yet")
	if err := h.AddReadyzCheck("webhook", func(*http.Request) error { return sick }); err != nil {
		t.Fatal(err)
	}

	for name, check := range map[string]healthz.Checker{"webhook": healthz.Ping, roleLeader: healthz.Ping, "": healthz.Ping, "nothing": nil} {
		if h.AddReadyzCheck(name, check) == nil {
			t.Errorf("AddReadyzCheck(%q) = nil, want an error", name)
		}
	}

	if page := l.probePage(t, "/readyz"); !strings.Contains(page, "[-]webhook failed") || !strings.Contains(page, "[+]role-standby ok") {
		t.Errorf("/readyz = %q, want a failed webhook check and the role of a standby", page)
	}
	if page := l.probePage(t, "/readyz/webhook"); !strings.Contains(page, "no certificate yet") {
		t.Errorf("/readyz/webhook = %q, want the reason", page)
	}
	if page := l.probePage(t, "/readyz?exclude=webhook"); page != "ok" {
		t.Errorf("/readyz without the failing check = %q, want ok", page)
	}

	if page := l.probePage(t, "/healthz"); page != "ok" {
		t.Errorf("/healthz = %q, want ok", page)
	}

	sick = nil
	close(elected)

	if page := l.probePage(t, "/readyz"); page != "ok" {
		t.Errorf("/readyz of a healthy replica = %q, want ok", page)
	}
	if page := l.probePage(t, "/readyz?verbose"); !strings.Contains(page, "[+]role-leader ok") {
		t.Errorf("/readyz?verbose of the leader = %q, want its role", page)
	}
}
