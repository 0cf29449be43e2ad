// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"maps"
	"sync"
)

// Latest passes the last snapshot to other goroutines. It publishes copies, because the observer reuses its snapshot; the memory of a
// copy that was never loaded is reused too, so that a loop without readers produces no garbage. Load is safe for concurrent use with one
// publisher. The zero value has no snapshot.
type Latest struct {
	mu      sync.Mutex
	current *Snapshot
	shared  bool // current was loaded and must not change any more

	spare *Snapshot // used by the publisher only
}

// Publish copies a snapshot as the latest one.
func (l *Latest) Publish(s *Snapshot) {
	next := l.spare
	l.spare = nil
	if next == nil {
		next = &Snapshot{}
	}
	next.copyFrom(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shared {
		l.spare = l.current
	}
	l.current, l.shared = next, false
}

// Load returns the latest snapshot, which never changes, or nil before the first.
func (l *Latest) Load() *Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared = true
	return l.current
}

// copyInto copies a list into existing memory if it fits.
func copyInto[T any](memory, from []T) []T { return append(memory[:0], from...) }

// copyFrom copies a snapshot into the memory of s.
func (s *Snapshot) copyFrom(from *Snapshot) {
	pods := s.Pods[:cap(s.Pods)]
	if len(pods) < len(from.Pods) {
		pods = append(pods, make([]Pod, len(from.Pods)-len(pods))...)
	}
	pods = pods[:len(from.Pods)]
	for i := range from.Pods {
		containers := copyInto(pods[i].Containers, from.Pods[i].Containers)
		pods[i] = from.Pods[i]
		pods[i].Containers = containers
	}
	disks, interfaces, zones := copyInto(s.Disks, from.Disks), copyInto(s.Interfaces, from.Interfaces), copyInto(s.Node.Zones, from.Node.Zones)
	problems := s.Problems
	*s = *from
	s.Pods, s.Disks, s.Interfaces, s.Node.Zones = pods, disks, interfaces, zones
	if problems == nil {
		problems = map[string]string{}
	}
	clear(problems)
	maps.Copy(problems, from.Problems)
	s.Problems = problems
}
