// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"time"
)

// Room is what may be done beyond the one workload. Each field says why not; empty where nothing is in the way.
type Room struct {
	// Broken: too much got worse in the cluster; nothing new is done at all.
	Broken string
	// Closed: no maintenance window is open; nothing is lowered.
	Closed string
	// Full: a budget is spent; nothing more is lowered.
	Full string
}

// Key names a workload in the book, Namespace is whose budget it is counted in.
type Key struct{ Namespace, Kind, Name, What string }

// Book knows what is under way in the whole cluster, and how it went. It is not safe for concurrent use: whoever decides
// holds it from Room to Set, so that two do not take the last place.
type Book struct {
	entries map[Key]entry
	// underWay counts the workloads of which something is being lowered.
	underWay map[string]int
	all      int
}

type entry struct {
	underWay bool
	outcomes []Outcome
}

// NewBook is empty.
func NewBook() *Book { return &Book{entries: map[Key]entry{}, underWay: map[string]int{}} }

// Set takes over the state of a workload; an untouched one is forgotten.
func (b *Book) Set(key Key, s State) {
	b.Remove(key)
	if s.Phase == Untouched {
		return
	}
	e := entry{underWay: s.UnderWay(), outcomes: s.Outcomes}
	b.entries[key] = e
	if e.underWay {
		b.underWay[key.Namespace]++
		b.all++
	}
}

// Remove forgets a workload.
func (b *Book) Remove(key Key) {
	if b.entries[key].underWay {
		b.all--
		if b.underWay[key.Namespace]--; b.underWay[key.Namespace] == 0 {
			delete(b.underWay, key.Namespace)
		}
	}
	delete(b.entries, key)
}

// Room says what may be done with one workload; whether a window is open is the caller's to say.
func (b *Book) Room(key Key, p Policy, now time.Time) Room {
	var r Room
	if open, worse, of := b.Breaker(p, now); open {
		r.Broken = fmt.Sprintf("the circuit breaker is open: %d of %d workloads lowered within %s got worse", worse, of, p.BreakerWindow)
	}
	all, here := b.all, b.underWay[key.Namespace]
	if b.entries[key].underWay {
		all, here = all-1, here-1
	}
	switch {
	case here >= p.PerNamespace:
		r.Full = fmt.Sprintf("%d workloads of the namespace are being lowered, which is as many as may be", here)
	case all >= p.PerCluster:
		r.Full = fmt.Sprintf("%d workloads of the cluster are being lowered, which is as many as may be", all)
	}
	return r
}

// Breaker tells whether too many workloads got worse within the window: the share, and at least so many.
func (b *Book) Breaker(p Policy, now time.Time) (open bool, worse, of int) {
	for _, e := range b.entries {
		lowered, bad := false, false
		for _, o := range e.outcomes {
			if now.Sub(o.At) < p.BreakerWindow {
				lowered, bad = true, bad || o.Worse != ""
			}
		}
		if lowered {
			of++
		}
		if bad {
			worse++
		}
	}
	return worse >= p.BreakerLeast && float64(worse) > float64(p.BreakerShare)*float64(of), worse, of
}

// UnderWay is the number of workloads of which something is being lowered.
func (b *Book) UnderWay() int { return b.all }

// Len is the number of workloads in the book.
func (b *Book) Len() int { return len(b.entries) }
