// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/testbed/simnode/kernel"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

const mebi = 1 << 20

// memoryFixture is a node with a throttler and a container with 100 MiB of anonymous memory and 300 MiB of page cache.
type memoryFixture struct {
	fixture
	throttler *MemoryThrottler
	clock     *clocktesting.FakeClock
}

func newMemoryFixture(t *testing.T, files func(*kernel.Tree) FileWriter) memoryFixture {
	t.Helper()

	n := memoryFixture{fixture: newFixture(t, false), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))}
	if _, err := n.tree.Tick(time.Second, []kernel.Load{{Group: n.group, Anon: 100 * mebi, File: 300 * mebi}}); err != nil {
		t.Fatal(err)
	}

	n.throttler = NewMemoryThrottler(MemoryThrottlerConfig{
		Layout: n.layout, Journal: n.open(t, files(n.tree)), Files: files(n.tree), Clock: n.clock, Beat: func(string) {},
	})

	return n
}

func itself(t *kernel.Tree) FileWriter { return t }

func (n memoryFixture) read(t *testing.T, file string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(n.tree.Dir, n.group, file))
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimSpace(string(content))
}

// start runs the throttler; the returned function stops it.
func (n memoryFixture) start(t *testing.T) (end func() error) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.throttler.Run(ctx) }()

	return func() error {
		cancel()
		return <-done
	}
}

// did enqueues a change and returns its outcome.
func (n memoryFixture) did(t *testing.T, th qos.MemoryThrottle) error {
	t.Helper()

	if !n.throttler.Enqueue(th, n.group) {
		t.Fatal("Enqueue = false, want the change to be queued")
	}

	var got []MemoryOutcome
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		got = n.throttler.Drain()
		return len(got) > 0, nil
	}); err != nil {
		t.Fatal("no outcome: ", err)
	}

	return got[0].Err
}

func memoryPlan(from, to, original qos.MemoryHigh, reclaim units.Bytes) qos.MemoryThrottle {
	return qos.MemoryThrottle{ContainerID: "c", Pod: qos.PodRef{Namespace: "batch", Name: "reader"}, From: from, To: to, Original: original, Reclaim: reclaim}
}

func TestMemoryThrottle(t *testing.T) {
	n := newMemoryFixture(t, itself)
	end := n.start(t)

	if err := n.did(t, memoryPlan(qos.NoMemoryHigh, 300*mebi, qos.NoMemoryHigh, 0)); err != nil || n.read(t, "memory.high") != "314572800" || n.read(t, "memory.current") != "314572800" {
		t.Errorf("lowering to 300Mi: %v with memory.high %s and memory.current %s, want nil and 300Mi in both", err, n.read(t, "memory.high"), n.read(t, "memory.current"))
	}
	// More is requested than can be reclaimed.
	if err := n.did(t, memoryPlan(300*mebi, 250*mebi, qos.NoMemoryHigh, 600*mebi)); err != nil || n.read(t, "memory.high") != "262144000" || n.read(t, "memory.current") != "104857600" {
		t.Errorf("reclaiming 600Mi: %v with memory.high %s and memory.current %s, want nil, 250Mi and 100Mi", err, n.read(t, "memory.high"), n.read(t, "memory.current"))
	}
	if err := n.did(t, memoryPlan(250*mebi, 280*mebi, qos.NoMemoryHigh, 0)); err != nil || n.read(t, "memory.high") != "293601280" {
		t.Errorf("a step back: %v with memory.high %s, want nil and 280Mi", err, n.read(t, "memory.high"))
	}

	if err := n.did(t, memoryPlan(280*mebi, qos.NoMemoryHigh, qos.NoMemoryHigh, 0)); err != nil || n.read(t, "memory.high") != "max" || len(n.throttler.cfg.Journal.Entries()) > 0 {
		t.Errorf("the last step back: %v with memory.high %s, want nil, max and no entries", err, n.read(t, "memory.high"))
	}
	if err := n.did(t, memoryPlan(qos.NoMemoryHigh, 200*mebi, qos.NoMemoryHigh, 0)); err != nil {
		t.Error(err)
	}
	if err := end(); err != nil || n.read(t, "memory.high") != "max" {
		t.Errorf("the end of Run: %v with memory.high %s, want nil and max", err, n.read(t, "memory.high"))
	}
}

// TestMemoryQoS checks that a limit of the kubelet is never exceeded and is restored.
func TestMemoryQoS(t *testing.T) {
	n := newMemoryFixture(t, itself)
	high := filepath.Join(n.tree.Dir, n.group, "memory.high")
	if err := n.tree.Write(high, "350M"); err != nil {
		t.Fatal(err)
	}

	end := n.start(t)
	if err := n.did(t, memoryPlan(350*mebi, 200*mebi, 350*mebi, 0)); err != nil || n.read(t, "memory.high") != "209715200" {
		t.Errorf("lowering to 200Mi: %v with memory.high %s, want nil and 200Mi", err, n.read(t, "memory.high"))
	}
	if err := n.did(t, memoryPlan(200*mebi, 400*mebi, 500*mebi, 0)); err != nil || n.read(t, "memory.high") != "367001600" {
		t.Errorf("raising to 400Mi: %v with memory.high %s, want nil and the kubelet's 350Mi", err, n.read(t, "memory.high"))
	}
	if err := n.did(t, memoryPlan(350*mebi, 200*mebi, 350*mebi, 0)); err != nil {
		t.Error(err)
	}

	// A limit it changes meanwhile is kept.
	if err := n.tree.Write(high, "360M"); err != nil {
		t.Fatal(err)
	}

	if err := end(); err != nil || n.read(t, "memory.high") != "377487360" {
		t.Errorf("the end of Run: %v with memory.high %s, want nil and the 360Mi of another process", err, n.read(t, "memory.high"))
	}
}

// TestMemoryReclaimsFiles checks that page cache is reclaimed in chunks before a limit is lowered.
func TestMemoryReclaimsFiles(t *testing.T) {
	for name, test := range map[string]struct {
		old  bool
		want []string
	}{
		"kernel that can":    {false, []string{"268435456 swappiness=0", "11534336 swappiness=0"}},
		"kernel that cannot": {true, []string{"268435456 swappiness=0", "268435456", "11534336"}},
	} {
		var asked []string
		n := newMemoryFixture(t, func(tree *kernel.Tree) FileWriter {
			return filesFunc(func(file, value string) error {
				if strings.HasSuffix(file, "memory.reclaim") {
					asked = append(asked, value)
					if test.old && strings.Contains(value, " ") {
						return syscall.EINVAL
					}
				}

				return tree.Write(file, value)
			})
		})

		end := n.start(t)
		th := memoryPlan(qos.NoMemoryHigh, 133*mebi, qos.NoMemoryHigh, 0)
		th.Freed = 267 * mebi
		if err := n.did(t, th); err != nil {
			t.Errorf("%s: the change = %v, want nil", name, err)
		}
		if err := end(); err != nil {
			t.Error(err)
		}

		if !slices.Equal(asked, test.want) {
			t.Errorf("%s: asked for %q, want %q", name, asked, test.want)
		}
	}
}

// TestMemoryThrottlePaused checks that nothing is reclaimed and no limit is lowered while Crane is paused, that a pause stops a reclaim between
// two chunks, and that limits are restored all the same.
func TestMemoryThrottlePaused(t *testing.T) {
	var paused atomic.Bool
	pauseAfter := -1 // chunks
	var reclaimed []string

	n := newMemoryFixture(t, func(tree *kernel.Tree) FileWriter {
		return filesFunc(func(file, value string) error {
			if strings.HasSuffix(file, "memory.reclaim") {
				reclaimed = append(reclaimed, value)
				paused.Store(len(reclaimed) == pauseAfter)
			}

			return tree.Write(file, value)
		})
	})

	n.throttler.cfg.Journal.Stopped = paused.Load
	end := n.start(t)

	if err := n.did(t, memoryPlan(qos.NoMemoryHigh, 300*mebi, qos.NoMemoryHigh, 0)); err != nil {
		t.Fatal(err)
	}

	paused.Store(true)
	lower := memoryPlan(300*mebi, 133*mebi, qos.NoMemoryHigh, 267*mebi)
	if err := n.did(t, lower); !errors.Is(err, ErrPaused) || len(reclaimed) > 0 || n.read(t, "memory.high") != "314572800" {
		t.Errorf("while paused: %v, reclaimed %q, memory.high %s; want ErrPaused, nothing, and 300Mi", err, reclaimed, n.read(t, "memory.high"))
	}

	paused.Store(false)
	pauseAfter = 1

	if err := n.did(t, lower); !errors.Is(err, ErrPaused) || len(reclaimed) != 1 || n.read(t, "memory.high") != "314572800" {
		t.Errorf("paused after a chunk: %v, reclaimed %q, memory.high %s; want ErrPaused, one chunk, and 300Mi", err, reclaimed, n.read(t, "memory.high"))
	}
	if err := n.did(t, memoryPlan(300*mebi, qos.NoMemoryHigh, qos.NoMemoryHigh, 0)); err != nil || n.read(t, "memory.high") != "max" {
		t.Errorf("restoring while paused: %v with memory.high %s, want nil and max", err, n.read(t, "memory.high"))
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestMemoryThrottleFails(t *testing.T) {
	n := newMemoryFixture(t, func(tree *kernel.Tree) FileWriter {
		return filesFunc(func(file, value string) error {
			if strings.HasSuffix(file, "memory.reclaim") {
				return syscall.EIO
			}

			return tree.Write(file, value)
		})
	})

	end := n.start(t)
	if err := n.did(t, memoryPlan(qos.NoMemoryHigh, 200*mebi, qos.NoMemoryHigh, mebi)); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(filepath.Join(n.tree.Dir, n.group)); err != nil {
		t.Fatal(err)
	}

	if err := n.did(t, memoryPlan(qos.NoMemoryHigh, 200*mebi, qos.NoMemoryHigh, 0)); err != nil {
		t.Errorf("a container that is gone: %v", err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}

	// Before Run, one change per container is queued, and stale ones are dropped.
	n = newMemoryFixture(t, itself)
	if !n.throttler.Enqueue(memoryPlan(qos.NoMemoryHigh, 200*mebi, qos.NoMemoryHigh, 0), n.group) || n.throttler.Enqueue(memoryPlan(qos.NoMemoryHigh, 100*mebi, qos.NoMemoryHigh, 0), n.group) {
		t.Error("want one to be taken, and not another of the same container")
	}

	for i := range 2 * memoryQueueSize {
		th := memoryPlan(qos.NoMemoryHigh, 200*mebi, qos.NoMemoryHigh, 0)
		th.ContainerID = strconv.Itoa(i)
		if taken := n.throttler.Enqueue(th, n.group); taken != (i < memoryQueueSize-1) {
			t.Fatalf("Enqueue of change %d = %t, want %d changes to be queued", i, taken, memoryQueueSize)
		}
	}

	n.clock.Step(2 * maxWait)
	end = n.start(t)

	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		outcomes := n.throttler.Drain()
		if len(outcomes) > 0 && outcomes[0].Err == nil {
			return true, errors.New("carried out")
		}

		return len(outcomes) > 0, nil
	}); err != nil {
		t.Error(err)
	}

	if err := end(); err != nil || n.read(t, "memory.high") != "max" {
		t.Errorf("the end of Run: %v with memory.high %s, want nil and max", err, n.read(t, "memory.high"))
	}
}
