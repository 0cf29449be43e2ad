// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"time"
)

// Allowance is what may be done beyond the one workload. Each field says why not; empty where nothing is in the way.
type Allowance struct {
	// BreakerOpen: too much got worse in the cluster; nothing new is done at all.
	BreakerOpen string
	// WindowClosed: no maintenance window is open; nothing is lowered.
	WindowClosed string
	// BudgetSpent: a budget is spent; nothing more is lowered.
	BudgetSpent string
}

// Key names a workload in the book, Namespace is whose budget it is counted in.
type Key struct{ Namespace, Kind, Name, Type string }

// BudgetTracker knows what is under way in the whole cluster, and how it went. It is not safe for concurrent use: whoever decides
// holds it from Room to Set, so that two do not take the last place.
type BudgetTracker struct {
	entries map[Key]budgetEntry
	// underWay counts the workloads of which something is being lowered.
	underWay map[string]int
	total    int
}

type budgetEntry struct {
	underWay bool
	outcomes []Outcome
}

// NewBudgetTracker is empty.
func NewBudgetTracker() *BudgetTracker {
	return &BudgetTracker{entries: map[Key]budgetEntry{}, underWay: map[string]int{}}
}

// Set takes over the state of a workload; an untouched one is forgotten.
func (b *BudgetTracker) Set(key Key, s State) {
	b.Remove(key)
	if s.Phase == Untouched {
		return
	}
	e := budgetEntry{underWay: s.UnderWay(), outcomes: s.Outcomes}
	b.entries[key] = e
	if e.underWay {
		b.underWay[key.Namespace]++
		b.total++
	}
}

// Remove forgets a workload.
func (b *BudgetTracker) Remove(key Key) {
	if b.entries[key].underWay {
		b.total--
		if b.underWay[key.Namespace]--; b.underWay[key.Namespace] == 0 {
			delete(b.underWay, key.Namespace)
		}
	}
	delete(b.entries, key)
}

// AllowanceFor says what may be done with one workload; whether a window is open is the caller's to say.
func (b *BudgetTracker) AllowanceFor(key Key, p Policy, now time.Time) Allowance {
	var r Allowance
	if open, worse, of := b.BreakerState(p, now); open {
		r.BreakerOpen = fmt.Sprintf("the circuit breaker is open: %d of %d workloads lowered within %s got worse", worse, of, p.BreakerWindow)
	}
	all, here := b.total, b.underWay[key.Namespace]
	if b.entries[key].underWay {
		all, here = all-1, here-1
	}
	switch {
	case here >= p.MaxPerNamespace:
		r.BudgetSpent = fmt.Sprintf("%d workloads of the namespace are being lowered, which is as many as may be", here)
	case all >= p.MaxPerCluster:
		r.BudgetSpent = fmt.Sprintf("%d workloads of the cluster are being lowered, which is as many as may be", all)
	}
	return r
}

// BreakerState tells whether too many workloads got worse within the window: the share, and at least so many.
func (b *BudgetTracker) BreakerState(p Policy, now time.Time) (open bool, worse, of int) {
	for _, e := range b.entries {
		lowered, bad := false, false
		for _, o := range e.outcomes {
			if now.Sub(o.At) < p.BreakerWindow {
				lowered, bad = true, bad || o.Regression != ""
			}
		}
		if lowered {
			of++
		}
		if bad {
			worse++
		}
	}
	return worse >= p.BreakerMinWorkloads && float64(worse) > float64(p.BreakerShare)*float64(of), worse, of
}

// UnderWay is the number of workloads of which something is being lowered.
func (b *BudgetTracker) UnderWay() int { return b.total }

// Len is the number of workloads in the book.
func (b *BudgetTracker) Len() int { return len(b.entries) }
