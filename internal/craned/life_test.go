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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// patience is how long a test waits for what takes a moment.
const patience = 60 * time.Second

// part is a runnable that records its begin and its end.
type part struct {
	name   string
	world  *miniature
	leader bool
	begun  chan struct{}
	// stuck does not end with its context.
	stuck chan struct{}
}

func (m *miniature) part(name string, leader bool) *part {
	return &part{name: name, world: m, leader: leader, begun: make(chan struct{})}
}

func (p *part) NeedLeaderElection() bool { return p.leader }

func (p *part) Start(ctx context.Context) error {
	p.world.note(p.name)
	close(p.begun)
	<-ctx.Done()
	if p.stuck != nil {
		<-p.stuck
	}
	p.world.note("end-" + p.name)
	return nil
}

// hooks is a part in the place of a webhook server.
type hooks struct{ *part }

func (hooks) Register(string, http.Handler)   {}
func (hooks) StartedChecker() healthz.Checker { return healthz.Ping }
func (hooks) WebhookMux() *http.ServeMux      { return nil }

var _ webhook.Server = hooks{}

// life is a manager as Run makes it, with parts of the test's.
type life struct {
	host
	lock   *lease
	cancel context.CancelFunc
	ended  chan error
}

func begin(t *testing.T, m *miniature, shutdown time.Duration, add ...manager.Runnable) *life {
	t.Helper()
	o := NewOptions()
	o.MetricsBindAddress, o.HealthProbeBindAddress = "0", "0"
	o.ShutdownTimeout = shutdown
	// Far apart: what ends leadership in these tests is not the deadline.
	o.LeaderElection = LeaderElection{Enabled: true, LeaseDuration: 300 * time.Second, RenewDeadline: 200 * time.Second, RetryPeriod: 100 * time.Millisecond}
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(context.WithoutCancel(t.Context()), logr.Discard()))
	lock, err := newLease(m.config(), o)
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHost(ctx, m.config(), o, lock)
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
	l := &life{host: h, lock: lock, cancel: cancel, ended: make(chan error, 1)}
	go func() { l.ended <- start(ctx, h, lock.lost) }()
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
		t.Fatalf("%s: not within %s", what, patience)
	}
}

func (l *life) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-l.ended:
		return err
	case <-time.After(patience):
		t.Fatal("the manager does not end")
		return nil
	}
}

// inOrder fails unless the words stand in the record in that order.
func inOrder(t *testing.T, record string, words ...string) {
	t.Helper()
	rest := " " + record + " "
	for _, word := range words {
		_, after, found := strings.Cut(rest, " "+word+" ")
		if !found {
			t.Fatalf("record %q: %v are not in that order: no %s", record, words, word)
		}
		rest = " " + after
	}
}

// TestLife: what the doc comment of Run says of begin and end, with a part that is added while others run.
func TestLife(t *testing.T) {
	m := newMiniature(t)
	hook, every, leading := hooks{m.part("webhook", false)}, m.part("every", false), m.part("leading", true)
	// Added in the opposite order.
	l := begin(t, m, patience, leading, every, hook)
	await(t, "the leader's work", leading.begun)
	await(t, "the work of every replica", every.begun)
	inOrder(t, m.noted(), "webhook", "every", "elected", "leading")
	inOrder(t, m.noted(), "list", "every")

	late, lateLeading := m.part("late", false), m.part("late-leading", true)
	for _, p := range []*part{late, lateLeading} {
		if err := l.Add(p); err != nil {
			t.Fatal(err)
		}
		await(t, "a part that was added later", p.begun)
	}

	l.cancel()
	if err := l.end(t); err != nil {
		t.Errorf("an orderly stop ends with %v", err)
	}
	inOrder(t, m.noted(), "end-every", "end-webhook")
	inOrder(t, m.noted(), "end-leading", "released")
	inOrder(t, m.noted(), "end-late-leading", "released")
	if m.holder() != "" {
		t.Errorf("the lease is still %s's", m.holder())
	}
}

// TestStandbyDoesNothing: without the lease what every replica does runs, and the leader's work does not, until the lease
// is free.
func TestStandbyDoesNothing(t *testing.T) {
	m := newMiniature(t)
	first := m.part("first", true)
	one := begin(t, m, patience, first)
	await(t, "the first", first.begun)
	every, second := m.part("every", false), m.part("second", true)
	two := begin(t, m, patience, every, second)
	await(t, "the work of every replica", every.begun)
	for l, want := range map[*life]string{one: "[+]role-leader ok", two: "[+]role-standby ok"} {
		if page := l.page(t, "/readyz?verbose"); !strings.Contains(page, want) {
			t.Errorf("readyz says %q, want %s in it", page, want)
		}
	}
	select {
	case <-second.begun:
		t.Error("two lead")
	default:
	}
	one.cancel()
	if err := one.end(t); err != nil {
		t.Error(err)
	}
	await(t, "the second", second.begun)
	inOrder(t, m.noted(), "end-first", "released", "elected", "second")
}

// page is a page of the probes.
func (l *life) page(t *testing.T, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	l.probes.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Body.String()
}

// TestStolenLease: the leader's contexts end with the lease, and Run with an error, although a part does not come to an end;
// nothing is given back.
func TestStolenLease(t *testing.T) {
	m := newMiniature(t)
	leading, stuck := m.part("leading", true), m.part("stuck", true)
	stuck.stuck = make(chan struct{})
	t.Cleanup(func() { close(stuck.stuck) })
	l := begin(t, m, patience, leading, stuck)
	await(t, "the leader's work", leading.begun)
	await(t, "the leader's work", stuck.begun)
	m.steal("thief")
	if err := l.end(t); err == nil || !strings.Contains(err.Error(), "the lease craned was taken by thief") {
		t.Errorf("ended with %v", err)
	}
	deadline := time.Now().Add(patience)
	for !strings.Contains(m.noted(), "end-leading") {
		if time.Now().After(deadline) {
			t.Fatal("the leader's work goes on")
		}
		runtime.Gosched()
	}
	if m.holder() != "thief" {
		t.Errorf("the lease of the thief is now %q's", m.holder())
	}
}

// TestStopIsBounded: a part that does not end holds up an orderly stop for no longer than it may.
func TestStopIsBounded(t *testing.T) {
	m := newMiniature(t)
	stuck := m.part("stuck", true)
	stuck.stuck = make(chan struct{})
	t.Cleanup(func() { close(stuck.stuck) })
	l := begin(t, m, 200*time.Millisecond, stuck)
	await(t, "the leader's work", stuck.begun)
	l.cancel()
	if err := l.end(t); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
}

// TestNothingLeft: after an orderly stop there are as many goroutines as before, however often one starts and stops.
func TestNothingLeft(t *testing.T) {
	var before int
	for i := range 4 {
		m := newMiniature(t)
		leading := m.part("leading", true)
		l := begin(t, m, patience, leading, m.part("every", false))
		await(t, "the leader's work", leading.begun)
		l.cancel()
		if err := l.end(t); err != nil {
			t.Fatal(err)
		}
		l.lock.close()
		l.GetHTTPClient().CloseIdleConnections()
		m.stop()
		if i == 0 {
			before = settled(t, 0) // With what the first one starts for the whole process.
		}
	}
	if after := settled(t, before); after > before {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", after, before, buf[:runtime.Stack(buf, true)])
	}
}

// settled is the number of goroutines when it has come down to want, or, where nothing is wanted, has not changed for a
// second.
func settled(t *testing.T, want int) int {
	t.Helper()
	began := time.Now()
	last, since := runtime.NumGoroutine(), began
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		now := runtime.NumGoroutine()
		switch {
		case want > 0 && now <= want, want == 0 && now == last && time.Since(since) > time.Second, time.Since(began) > patience:
			return now
		case now != last:
			last, since = now, time.Now()
		}
	}
	return last
}

// TestProbes: checks can be told apart and asked alone; a failing one fails the page; names are their own.
func TestProbes(t *testing.T) {
	elected := make(chan struct{})
	h := host{probes: newProbes(elected)}
	l := &life{host: h}
	sick := errors.New("no certificate yet")
	if err := h.AddReadyzCheck("webhook", func(*http.Request) error { return sick }); err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]healthz.Checker{"webhook": healthz.Ping, roleLeader: healthz.Ping, "": healthz.Ping, "nothing": nil} {
		if h.AddReadyzCheck(name, check) == nil {
			t.Errorf("a check %q is added", name)
		}
	}
	if page := l.page(t, "/readyz"); !strings.Contains(page, "[-]webhook failed") || !strings.Contains(page, "[+]role-standby ok") {
		t.Error(page)
	}
	if page := l.page(t, "/readyz/webhook"); !strings.Contains(page, "no certificate yet") {
		t.Error(page)
	}
	if page := l.page(t, "/healthz"); page != "ok" {
		t.Errorf("alive: %q", page)
	}
	sick = nil
	close(elected)
	if page := l.page(t, "/readyz"); page != "ok" {
		t.Errorf("ready: %q", page)
	}
	if page := l.page(t, "/readyz?verbose"); !strings.Contains(page, "[+]role-leader ok") {
		t.Error(page)
	}
}
