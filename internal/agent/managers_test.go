// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/heartbeat"
)

// eventLog records events in order.
type eventLog struct {
	mu   sync.Mutex
	said []string
}

func (j *eventLog) add(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.said = append(j.said, what)
}

func (j *eventLog) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.Clone(j.said)
}

// fakeManager is a manager with configurable behavior.
type fakeManager struct {
	name string
	to   *eventLog
	beat func(string)
	run  func(ctx context.Context) error
}

func (w *fakeManager) Name() string { return w.name }

func (w *fakeManager) Run(ctx context.Context) error {
	w.to.add("start " + w.name)
	defer w.to.add("stop " + w.name)

	return w.run(ctx)
}

func (w *fakeManager) untilTheEnd(ctx context.Context) error {
	w.beat("work")
	<-ctx.Done()
	return nil
}

func newManagerGroup(clk clock.WithTicker) (managerGroup, *eventLog, func(name string) *fakeManager) {
	to := &eventLog{}
	g := managerGroup{log: logr.Discard(), clock: clk, heartbeats: heartbeat.New(clk), stopTimeout: time.Minute}
	return g, to, func(name string) *fakeManager {
		w := &fakeManager{name: name, to: to, beat: g.heartbeats.Register(name)}
		w.run = w.untilTheEnd
		return w
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()

	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return holds(), nil }); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// TestManagersInOrder checks that managers start in order, each after the previous one, and stop in reverse order.
func TestManagersInOrder(t *testing.T) {
	g, to, made := newManagerGroup(clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.run(ctx, []Manager{made("a"), made("b"), made("c")}) }()
	until(t, "all start", func() bool { return len(to.all()) == 3 })
	cancel()

	if err := <-done; err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(to.all(), ", "), "start a, start b, start c, stop c, stop b, stop a"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestSlowManager checks that a manager that does not start delays the next one for a limited time, and one that does not stop is named.
func TestSlowManager(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	g, to, made := newManagerGroup(clk)
	slow := made("slow")
	quick := made("quick")
	release := make(chan struct{})
	slow.run = func(context.Context) error { <-release; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.run(ctx, []Manager{slow, quick}) }()
	until(t, "the start waits", clk.HasWaiters)

	if got := to.all(); slices.Contains(got, "start quick") {
		t.Errorf("steps are %v, want the next manager to wait", got)
	}

	clk.Step(startTimeout)
	until(t, "the next starts all the same", func() bool { return slices.Contains(to.all(), "start quick") })
	until(t, "it alone is waited for", func() bool {
		late := g.heartbeats.NotStarted()
		return len(late) == 1 && strings.HasPrefix(late[0], "slow ")
	})
	cancel()
	until(t, "quick stops first", func() bool { return slices.Contains(to.all(), "stop quick") })
	until(t, "the stop waits", clk.HasWaiters)
	clk.Step(g.stopTimeout)

	if err := <-done; err == nil || !strings.Contains(err.Error(), "slow: has not stopped in time") {
		t.Errorf("%v", err)
	}
	close(release)
}

// TestFailingManager checks that a failed manager is restarted after a pause while others run, and that errors at the end are returned.
func TestFailingManager(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	g, to, made := newManagerGroup(clk)
	bad := made("bad")
	good := made("good")
	tries := 0

	bad.run = func(ctx context.Context) error {
		bad.beat("try")
		tries++

		if tries < 3 {
			return errors.New("no luck")
		}

		<-ctx.Done()
		return errors.New("cannot undo")
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.run(ctx, []Manager{bad, good}) }()

	starts := func() int {
		n := 0
		for _, s := range to.all() {
			if s == "start bad" {
				n++
			}
		}

		return n
	}

	for want := 2; want <= 3; want++ {
		until(t, "it pauses", clk.HasWaiters)
		until(t, "it is started again", func() bool { clk.Step(minRetry); return starts() >= want })
	}

	until(t, "the other runs", func() bool { return slices.Contains(to.all(), "start good") })
	cancel()

	if err := <-done; err == nil || !strings.Contains(err.Error(), "bad: cannot undo") {
		t.Errorf("run = %v, want the failed undo of bad", err)
	}
	if got := to.all(); slices.Index(got, "stop good") < 0 {
		t.Errorf("steps are %v, want the stop of good", got)
	}
}

// TestStopBeforeAllStarted checks that a stop during the start stops the started managers.
func TestStopBeforeAllStarted(t *testing.T) {
	g, to, made := newManagerGroup(clock.RealClock{})
	hangs := made("hangs")
	hangs.run = func(ctx context.Context) error { <-ctx.Done(); return nil }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.run(ctx, []Manager{made("a"), hangs, made("never")}) }()
	until(t, "the second starts", func() bool { return slices.Contains(to.all(), "start hangs") })
	cancel()

	if err := <-done; err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(to.all(), ", "), "start a, start hangs, stop hangs, stop a"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
