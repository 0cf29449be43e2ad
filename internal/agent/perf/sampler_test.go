// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/host"
)

func TestSum(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		counts []reading
		want   float64
		ok     bool
	}{
		"all of the time":       {[]reading{{200, 100, second, second}, {100, 100, second, second}}, 1.5, true},
		"counters are shared":   {[]reading{{100, 50, 2 * second, second}, {100, 100, second, second}}, 1.5, true},
		"one CPU had none":      {[]reading{{200, 100, second, second}, {0, 0, 0, 0}}, 2, true},
		"others had them":       {[]reading{{200, 100, 100 * second, second}}, 0, false},
		"hardly on a CPU":       {[]reading{{200, 100, time.Millisecond, time.Millisecond}}, 0, false},
		"no instruction":        {[]reading{{200, 0, second, second}}, 0, false},
		"nothing":               {nil, 0, false},
		"more run than enabled": {[]reading{{200, 100, second, 2 * second}}, 0, false},
		"the largest there are": {[]reading{{math.MaxUint64, math.MaxUint64, second, second}, {math.MaxUint64, math.MaxUint64, second, second}}, 1, true},
	} {
		var s totals
		for _, c := range test.counts {
			s.add(c)
		}

		if got, ok := s.cyclesPerInstruction(); got != test.want || ok != test.ok {
			t.Errorf("%s: cyclesPerInstruction = %g, %t, want %g, %t", name, got, ok, test.want, test.ok)
		}
	}
}

// TestNoTimes checks that values without times are an error and not a sample of zero.
func TestNoTimes(t *testing.T) {
	for want, r := range map[error]reading{errNoTimes: {cycles: 1, instructions: 1}, nil: {}} {
		if err := r.validate(); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", r, err, want)
		}
	}
}

// fixture is a simulated host with CPUs and countable pods.
type fixture struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	sampler *Sampler
	logged  []string

	mu         sync.Mutex
	pods       []Target
	gone       map[string]bool
	err        error
	open, most int
	opened     map[string]int
}

type fakeCounter struct {
	b *fixture
}

func (f *fakeCounter) read() (reading, error) {
	return reading{cycles: 300, instructions: 100, enabled: time.Second, running: time.Second}, nil
}

func (f *fakeCounter) close() {
	f.b.mu.Lock()
	defer f.b.mu.Unlock()

	f.b.open--
}

func newFixture(t *testing.T, cpus, pods int) *fixture {
	b := &fixture{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)), gone: map[string]bool{}, opened: map[string]int{}}
	for i := range pods {
		b.pods = append(b.pods, Target{UID: fmt.Sprint(i), Dir: fmt.Sprint("/", i)})
	}

	b.sampler = New(Config{
		Pods:  func() []Target { b.mu.Lock(); defer b.mu.Unlock(); return slices.Clone(b.pods) },
		Clock: b.clock, Beat: func(string) {},

		Log: funcr.New(func(_, args string) { b.mu.Lock(); defer b.mu.Unlock(); b.logged = append(b.logged, args) }, funcr.Options{}),
	})

	b.sampler.onlineCPUs = func(host.Root) ([]int, error) { return make([]int, cpus), nil }

	b.sampler.dirExists = func(dir string) bool { b.mu.Lock(); defer b.mu.Unlock(); return !b.gone[dir] }
	b.sampler.openCounter = func(dir string, _ int) (counter, error) {
		b.mu.Lock()
		defer b.mu.Unlock()

		if b.err != nil {
			return nil, b.err
		}

		b.open++
		b.most = max(b.most, b.open)
		b.opened[dir]++

		return &fakeCounter{b}, nil
	}

	return b
}

// start runs the sampler until the end of the test.
func (b *fixture) start() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.sampler.Run(ctx) }()
	stopped := false

	stop = func() {
		if stopped {
			return
		}

		stopped = true
		cancel()

		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}

	b.t.Cleanup(stop)
	return stop
}

// advance moves the clock second by second, each time after the sampler waits.
func (b *fixture) advance(seconds int) {
	b.t.Helper()

	for range seconds {
		b.awaitTimer()
		b.clock.Step(time.Second)
	}
	b.awaitTimer()
}

func (b *fixture) awaitTimer() {
	b.t.Helper()

	if err := wait.PollUntilContextTimeout(b.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return b.clock.HasWaiters(), nil
	}); err != nil {
		b.t.Fatal("the sampler does not wait: ", err)
	}
}

func (b *fixture) openGroups() int { b.mu.Lock(); defer b.mu.Unlock(); return b.open }

// TestSampler checks that counters are open only during the window of each period, and that a sample follows.
func TestSampler(t *testing.T) {
	b := newFixture(t, 4, 3)
	stop := b.start()
	b.awaitTimer()

	if _, ok := b.sampler.Latest("0"); ok || b.openGroups() != 12 {
		t.Errorf("%d counters are open, want 12 groups of two", b.openGroups())
	}

	b.advance(10)
	if s, ok := b.sampler.Latest("0"); !ok || s.CyclesPerInstruction != 3 || !s.At.Equal(b.clock.Now()) || b.openGroups() != 0 {
		t.Errorf("Latest = %+v, %t with %d open counters, want 3 and none", s, ok, b.openGroups())
	}

	b.advance(34)
	if b.openGroups() != 0 {
		t.Errorf("%d counters are open between two windows, want none", b.openGroups())
	}

	b.advance(1)
	if b.openGroups() != 12 {
		t.Errorf("%d counters are open in the second window, want 12", b.openGroups())
	}

	// A removed pod loses its counters and its sample.
	b.mu.Lock()
	b.gone["/1"] = true
	b.pods = b.pods[:1]
	b.mu.Unlock()
	b.advance(1)

	if b.openGroups() != 8 {
		t.Errorf("%d are open after a pod went, want 8", b.openGroups())
	}

	b.advance(44)
	if _, ok := b.sampler.Latest("1"); ok || b.openGroups() != 4 {
		t.Errorf("a removed pod has a sample: %t, with %d open counters; want none and 4", ok, b.openGroups())
	}

	stop()
	if b.openGroups() != 0 {
		t.Errorf("%d counters are open after the end, want none", b.openGroups())
	}

	b.clock.Step(2 * maxAge)
	if _, ok := b.sampler.Latest("0"); ok {
		t.Error("Latest of an old sample = true, want false")
	}
}

// TestSamplerIsBounded checks that pods take turns if the counters do not suffice.
func TestSamplerIsBounded(t *testing.T) {
	b := newFixture(t, 128, 11)
	b.start()
	b.awaitTimer()
	b.advance(3 * 45)

	if b.most > maxDescriptors/2 || b.most < 4*128 {
		t.Errorf("up to %d groups of two were open, want %d to %d", b.most, 4*128, maxDescriptors/2)
	}

	for i := range 11 {
		if b.opened[fmt.Sprint("/", i)] == 0 {
			t.Errorf("pod %d was never counted, want every pod in its turn", i)
		}
	}
}

// TestSamplerFails checks that a refusal is logged once and retried.
func TestSamplerFails(t *testing.T) {
	b := newFixture(t, 2, 2)
	b.err = errors.New("permission denied")
	b.start()
	b.awaitTimer()
	b.advance(3 * 45)
	b.mu.Lock()

	if len(b.logged) != 1 || !strings.Contains(b.logged[0], "permission denied") {
		t.Errorf("logged %q, want the missing permission once", b.logged)
	}

	b.err = nil
	b.mu.Unlock()
	b.advance(45 + 10)

	if _, ok := b.sampler.Latest("1"); !ok {
		t.Error("Latest after the recovery = false, want another try")
	}
}
