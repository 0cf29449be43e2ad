// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/series"
)

// Allowance holds the limits that other workloads and the clock set. Each field is the reason for a limit, empty without one.
type Allowance struct {
	// BreakerOpen: too many workloads of the cluster got worse; no change starts.
	BreakerOpen string
	// WindowClosed: no maintenance window is open; nothing is lowered.
	WindowClosed string
	// BudgetSpent: a budget is spent; nothing more is lowered.
	BudgetSpent string
}

// Key identifies a workload in the budgets. Type is the analysis type that is adopted.
type Key struct{ Namespace, Kind, Name, Type string }

// BudgetTracker counts the workloads of the cluster that are being lowered, and their outcomes. It is not safe for concurrent use:
// the caller locks it from AllowanceFor to Set, so that two decisions cannot spend the same budget.
type BudgetTracker struct {
	entries map[Key]budgetEntry
	// underWay counts the workloads that are being lowered by namespace, total those of the cluster.
	underWay map[string]int
	total    int
}

type budgetEntry struct {
	underWay bool
	outcomes []Outcome
}

// NewBudgetTracker returns a tracker without workloads.
func NewBudgetTracker() *BudgetTracker {
	return &BudgetTracker{entries: map[Key]budgetEntry{}, underWay: map[string]int{}}
}

// Set records the state of a workload; an untouched workload is removed.
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

// Remove deletes a workload.
func (b *BudgetTracker) Remove(key Key) {
	if b.entries[key].underWay {
		b.total--
		if b.underWay[key.Namespace]--; b.underWay[key.Namespace] == 0 {
			delete(b.underWay, key.Namespace)
		}
	}
	delete(b.entries, key)
}

// AllowanceFor returns the limits of budgets and circuit breaker for one workload; the caller adds those of maintenance windows.
func (b *BudgetTracker) AllowanceFor(key Key, p Policy, now time.Time) Allowance {
	var a Allowance
	if open, worse, of := b.BreakerState(p, now); open {
		a.BreakerOpen = fmt.Sprintf("the circuit breaker is open: %d of %d workloads lowered within %s got worse", worse, of, p.BreakerWindow)
	}
	total, inNamespace := b.total, b.underWay[key.Namespace]
	if b.entries[key].underWay {
		total, inNamespace = total-1, inNamespace-1
	}
	switch {
	case inNamespace >= p.MaxPerNamespace:
		a.BudgetSpent = fmt.Sprintf("the maximum of %s lowered at once in a namespace is reached", series.FormatCount(inNamespace, "workload"))
	case total >= p.MaxPerCluster:
		a.BudgetSpent = fmt.Sprintf("the maximum of %s lowered at once in the cluster is reached", series.FormatCount(total, "workload"))
	}
	return a
}

// BreakerState reports whether the circuit breaker is open, with the number of workloads that got worse and of all that were lowered
// within the window.
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

// UnderWay returns the number of workloads that are being lowered or watched.
func (b *BudgetTracker) UnderWay() int { return b.total }

// Len returns the number of workloads.
func (b *BudgetTracker) Len() int { return len(b.entries) }
