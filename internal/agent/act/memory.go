// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

const (
	// memoryQueueSize is enough for one measurement of a node with many pods.
	memoryQueueSize = 256
	// reclaimChunk is reclaimed per write, which takes some tenths of a second, so that the end of the agent is noticed.
	reclaimChunk units.Bytes = 256 << 20
	// withoutSwap restricts reclaim to page cache. Older kernels reject it.
	withoutSwap = " swappiness=0"
	// KindMemory is the kind of units with memory limits of containers.
	KindMemory = "memory"
)

// MemoryThrottlerConfig configures a MemoryThrottler.
type MemoryThrottlerConfig struct {
	Layout cgroup.Layout
	// Journal is separate from that of other changes, because a write of memory.high returns only after the excess is reclaimed.
	Journal *Journal
	Files   FileWriter
	Clock   clock.WithTicker
	// Beat is called after each change and while idle.
	Beat func(step string)
	// Undo undoes everything at the end; nil for Journal.UndoAll.
	Undo func() error
}

// MemoryThrottler changes memory limits of containers, one after the other, beside the loop, because the kernel takes its time. Each
// enqueued change has exactly one outcome. Its methods are safe for concurrent use.
type MemoryThrottler struct {
	cfg   MemoryThrottlerConfig
	queue chan memoryRequest

	mu       sync.Mutex
	pending  map[string]bool // containers whose outcome is not drained yet
	outcomes []MemoryOutcome // at most one per pending container
}

type memoryRequest struct {
	throttle    qos.MemoryThrottle
	group       string
	requestedAt time.Time
}

// MemoryOutcome is the outcome of a change.
type MemoryOutcome struct {
	Throttle qos.MemoryThrottle
	// Err is nil if it was executed or the cgroup no longer exists.
	Err error
}

// NewMemoryThrottler returns a throttler to be started with Run.
func NewMemoryThrottler(cfg MemoryThrottlerConfig) *MemoryThrottler {
	if cfg.Undo == nil {
		cfg.Undo = cfg.Journal.UndoAll
	}

	return &MemoryThrottler{cfg: cfg, queue: make(chan memoryRequest, memoryQueueSize), pending: map[string]bool{}}
}

// Name implements Manager.
func (*MemoryThrottler) Name() string { return "memory" }

// Enqueue queues a change of a container's cgroup without waiting. It returns false, and drops the change, if one of this container is
// pending or the queue is full.
func (m *MemoryThrottler) Enqueue(t qos.MemoryThrottle, group string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.pending[t.ContainerID] {
		return false
	}

	select {
	case m.queue <- memoryRequest{t, group, m.cfg.Clock.Now()}:
		m.pending[t.ContainerID] = true
		return true
	default:
		return false
	}
}

// Drain returns the outcomes since the last call.
func (m *MemoryThrottler) Drain() []MemoryOutcome {
	m.mu.Lock()
	defer m.mu.Unlock()

	out := m.outcomes
	m.outcomes = nil
	for _, o := range out {
		delete(m.pending, o.Throttle.ContainerID)
	}

	return out
}

// UndoInherited restores the containers that a previous agent throttled and that are not throttled now.
func (m *MemoryThrottler) UndoInherited(throttled func(containerID string) bool) error {
	return m.cfg.Journal.UndoUnless(func(key string) bool {
		id, ours := strings.CutPrefix(key, KindMemory+"/")
		return !ours || throttled(id)
	})
}

// Run executes changes until ctx ends and then undoes them.
func (m *MemoryThrottler) Run(ctx context.Context) error {
	ticker := m.cfg.Clock.NewTicker(idleBeat)
	defer ticker.Stop()

	for {
		m.cfg.Beat("memory")
		select {
		case <-ctx.Done():
			if err := m.cfg.Undo(); err != nil {
				return fmt.Errorf("undoing memory limits: %w", err)
			}

			return nil

		case <-ticker.C():

		case a := <-m.queue:
			// The decision is stale after a wait; after the end of ctx only the undo matters.
			o := MemoryOutcome{Throttle: a.throttle}
			if waited := m.cfg.Clock.Since(a.requestedAt); waited > maxWait {
				o.Err = fmt.Errorf("it has waited for %s", waited.Round(time.Second))
			} else if ctx.Err() == nil {
				o.Err = m.execute(ctx, a.throttle, a.group)
			}

			m.mu.Lock()
			m.outcomes = append(m.outcomes, o)
			m.mu.Unlock()
		}
	}
}

func (m *MemoryThrottler) execute(ctx context.Context, t qos.MemoryThrottle, group string) error {
	key := KindMemory + "/" + t.ContainerID
	if t.To == t.Original || t.To == qos.NoMemoryHigh {
		return m.cfg.Journal.Undo(key)
	}

	text, err := m.cfg.Journal.Original(key, group, cgroup.FileHigh)
	if errors.Is(err, host.ErrGone) {
		return m.cfg.Journal.Forget(key)
	}
	if err != nil {
		return err
	}

	to := int64(t.To)
	// A kubelet with MemoryQoS may have set a lower limit since.
	if original, err := strconv.ParseInt(text, 10, 64); err == nil {
		to = min(to, original)
	}

	// Reclaim before lowering the limit, because the limit's own reclaim would also swap.
	if err := m.reclaim(ctx, group, max(t.Reclaim, t.Freed)); err != nil {
		return fmt.Errorf("%s: %w", t.Pod, err)
	}

	change := Change{Group: group, File: cgroup.FileHigh, Value: strconv.FormatInt(to, 10)}
	return m.cfg.Journal.Change(Unit{Key: key, Subject: t.Pod.String(), Changes: []Change{change}})
}

// reclaim requests that the kernel drop up to the given amount of a cgroup's page cache, which needs no undo. It stops with ErrPaused when
// Crane is paused.
func (m *MemoryThrottler) reclaim(ctx context.Context, group string, want units.Bytes) error {
	file, ok := m.cfg.Layout.ReclaimFile(group)
	how := withoutSwap
	for ok && want > 0 && ctx.Err() == nil {
		if m.cfg.Journal.Paused() {
			return ErrPaused
		}

		part := min(want, reclaimChunk)
		err := m.cfg.Files.Write(file, strconv.FormatInt(int64(part), 10)+how)
		switch {
		case err == nil:
			want -= part
		case errors.Is(err, syscall.EINVAL) && how != "":
			how = ""
		case errors.Is(err, syscall.EAGAIN):
			return nil // There was less to reclaim.
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENODEV):
			return nil // The cgroup is gone, or the kernel is older than 5.19 and memory.high alone reclaims.
		default:
			return fmt.Errorf("reclaiming: %w", err)
		}

		m.cfg.Beat("memory")
	}

	return nil
}
