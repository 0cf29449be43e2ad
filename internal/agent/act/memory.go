// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

const (
	// memoryQueueSize is how many changes of memory may wait: those of a node with many pods in one measurement.
	memoryQueueSize = 256
	// reclaimChunk is what is asked back in one write: some tenths of a second, after which the end of the agent is looked at.
	reclaimChunk series.Bytes = 256 << 20
	// withoutSwap has the kernel drop files and swap nothing out. Older kernels refuse it.
	withoutSwap = " swappiness=0"
	// kindMemory is the kind of units that are containers' limits of memory.
	kindMemory = "memory"
)

// MemoryThrottlerConfig is what a MemoryThrottler needs.
type MemoryThrottlerConfig struct {
	Layout cgroup.Layout
	// Journal is its own: a write of memory.high returns when what is above it has been reclaimed, and others must not wait for that.
	Journal *Journal
	Files   FileWriter
	Clock   clock.WithTicker
	// Beat is called after each change, and while there is none.
	Beat func(step string)
	// Undo puts everything back at the end; nil for the journal's own.
	Undo func() error
}

// MemoryThrottler changes limits of memory of containers, one after the other, beside the loop: the kernel takes its time. Each Ask that is
// taken has exactly one outcome. Its methods are safe for concurrent use.
type MemoryThrottler struct {
	cfg   MemoryThrottlerConfig
	queue chan memoryRequest

	mu       sync.Mutex
	pending  map[string]bool // containers whose outcome was not drained yet
	outcomes []MemoryOutcome // one for each of them at most
}

type memoryRequest struct {
	throttle    qos.MemoryThrottle
	group       string
	requestedAt time.Time
}

// MemoryOutcome is what came of a change.
type MemoryOutcome struct {
	Throttle qos.MemoryThrottle
	// Err is nil where it was done, or nothing is left to be done, as in a group that is gone.
	Err error
}

// NewMemoryThrottler returns a throttler that does nothing before Run.
func NewMemoryThrottler(cfg MemoryThrottlerConfig) *MemoryThrottler {
	if cfg.Undo == nil {
		cfg.Undo = cfg.Journal.UndoAll
	}
	return &MemoryThrottler{cfg: cfg, queue: make(chan memoryRequest, memoryQueueSize), pending: map[string]bool{}}
}

// Name is that of its heartbeat.
func (*MemoryThrottler) Name() string { return "memory" }

// Enqueue hands a change of a container's group over and does not wait. It is false where one of this container is under way, or too many
// wait: then nothing comes of it.
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

// Drain returns the outcomes since the last time.
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

// Run works until ctx ends, and then puts everything back.
func (m *MemoryThrottler) Run(ctx context.Context) error {
	ticker := m.cfg.Clock.NewTicker(idleBeat)
	defer ticker.Stop()
	for {
		m.cfg.Beat("memory")
		select {
		case <-ctx.Done():
			if err := m.cfg.Undo(); err != nil {
				return fmt.Errorf("undo limits of memory: %w", err)
			}
			return nil
		case <-ticker.C():
		case a := <-m.queue:
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
	key := kindMemory + "/" + t.ContainerID
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
	// A kubelet with MemoryQoS may have set a lower one since it was decided.
	if original, err := strconv.ParseInt(text, 10, 64); err == nil {
		to = min(to, original)
	}
	// What is above the limit goes before it falls: the limit's own reclaim would swap as well.
	if err := m.reclaim(ctx, group, max(t.Reclaim, t.Freed)); err != nil {
		return fmt.Errorf("%s: %w", t.Pod, err)
	}
	change := Change{Group: group, File: cgroup.FileHigh, Value: strconv.FormatInt(to, 10)}
	return m.cfg.Journal.Change(Unit{Key: key, Subject: t.Pod.String(), Changes: []Change{change}})
}

// reclaim asks the kernel to drop as much of a group's files as it can of what is wanted. There is nothing to be undone: what is needed is
// read again.
func (m *MemoryThrottler) reclaim(ctx context.Context, group string, want series.Bytes) error {
	file, ok := m.cfg.Layout.ReclaimFile(group)
	how := withoutSwap
	for ok && want > 0 && ctx.Err() == nil {
		part := min(want, reclaimChunk)
		err := m.cfg.Files.Write(file, strconv.FormatInt(int64(part), 10)+how)
		switch {
		case err == nil:
			want -= part
		case errors.Is(err, syscall.EINVAL) && how != "":
			how = ""
		case errors.Is(err, syscall.EAGAIN):
			return nil // There was less.
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENODEV):
			return nil // The group is gone, or the kernel is older than 5.19: memory.high does it alone.
		default:
			return fmt.Errorf("reclaim: %w", err)
		}
		m.cfg.Beat("memory")
	}
	return nil
}
