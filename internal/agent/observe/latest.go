// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"maps"
	"sync"
)

// Latest passes the snapshot of the last look on to those who look at it in a goroutine of their own. The observer uses its snapshot
// again at its next look, so what is passed on is a copy; the memory of one that nobody has asked for is used for the next, so that a
// loop to which nobody listens makes no garbage. It is safe for concurrent use with one who publishes; the zero value has no snapshot.
type Latest struct {
	mu      sync.Mutex
	current *Snapshot
	shared  bool // somebody has got current, which therefore never changes any more

	spare *Snapshot // of the one who publishes
}

// Publish makes a snapshot the latest. It may change as soon as Publish has returned.
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

// Load returns the latest snapshot, whose time is At, or nil before the first. It is not changed by anybody: neither by a look nor by
// the caller.
func (l *Latest) Load() *Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared = true
	return l.current
}

// copyInto copies a list into the memory of another, as far as that is enough.
func copyInto[T any](memory, from []T) []T { return append(memory[:0], from...) }

// copyFrom makes s the same as another, in memory of its own.
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
