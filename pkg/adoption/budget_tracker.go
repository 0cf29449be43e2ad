// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// Allowance holds the limits that other workloads and the clock set. Each field is the reason for a limit, empty without one.
type Allowance struct {
	// BreakerOpen: too many workloads of the namespace or of the cluster got worse; no change starts.
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
		b.underWay[key.Namespace]--

		if b.underWay[key.Namespace] == 0 {
			delete(b.underWay, key.Namespace)
		}
	}

	delete(b.entries, key)
}

// AllowanceFor returns the limits of budgets and circuit breakers for one workload; the caller adds those of maintenance windows. States are
// annotations, which tenants may write, so a namespace counts at most MaxPerNamespace workloads in the budget of the cluster.
func (b *BudgetTracker) AllowanceFor(key Key, p Policy, now time.Time) Allowance {
	var a Allowance
	for _, breaker := range b.OpenBreakers(p, now) {
		switch breaker.Namespace {
		case "":
			a.BreakerOpen = fmt.Sprintf("the circuit breaker is open: %d of %d workloads lowered within %s got worse", breaker.Worse, breaker.Of, p.BreakerWindow)
		case key.Namespace:
			a.BreakerOpen = fmt.Sprintf("the circuit breaker is open: %d of %d workloads of the namespace lowered within %s got worse", breaker.Worse, breaker.Of, p.BreakerWindow)
		}
	}

	// A workload that is under way already does not count against its own budget.
	inNamespace := b.underWay[key.Namespace]
	if b.entries[key].underWay {
		inNamespace--
	}

	total := 0
	for namespace, n := range b.underWay {
		if namespace == key.Namespace {
			n = inNamespace
		}
		total += min(n, p.MaxPerNamespace)
	}

	switch {
	case inNamespace >= p.MaxPerNamespace:
		a.BudgetSpent = fmt.Sprintf("the maximum of %s lowered at once in a namespace is reached", units.FormatCount(inNamespace, "workload"))
	case total >= p.MaxPerCluster:
		a.BudgetSpent = fmt.Sprintf("the maximum of %s lowered at once in the cluster is reached", units.FormatCount(total, "workload"))
	}

	return a
}

// Breaker is an open circuit breaker: of a namespace or, with an empty Namespace, of the cluster. Worse of the Of workloads that were lowered
// within the window got worse.
type Breaker struct {
	Namespace string
	Worse, Of int
}

// exceeds reports whether enough workloads got worse to stop the others.
func (b Breaker) exceeds(p Policy) bool {
	return b.Worse >= p.BreakerMinWorkloads && float64(b.Worse) > float64(p.BreakerShare)*float64(b.Of)
}

// OpenBreakers returns the open circuit breakers, ordered by namespace, that of the cluster first. The breaker of a namespace counts its own
// workloads. That of the cluster counts all, and opens only if it would also without any single namespace: outcomes are annotations, which
// tenants may write, and one tenant must not stop all others. Outcomes in the future are ignored.
func (b *BudgetTracker) OpenBreakers(p Policy, now time.Time) []Breaker {
	var cluster Breaker
	byNamespace := map[string]Breaker{}
	for key, e := range b.entries {
		// A workload counts once, however often it was lowered, and as worse if any of its steps was.
		lowered, bad := 0, 0
		for _, o := range e.outcomes {
			if age := now.Sub(o.At); age >= 0 && age < p.BreakerWindow {
				lowered = 1
				if o.Regression != "" {
					bad = 1
				}
			}
		}

		counts := byNamespace[key.Namespace]
		byNamespace[key.Namespace] = Breaker{Namespace: key.Namespace, Worse: counts.Worse + bad, Of: counts.Of + lowered}
		cluster.Worse += bad
		cluster.Of += lowered
	}

	var out []Breaker
	open := cluster.exceeds(p)
	for _, breaker := range byNamespace {
		if breaker.exceeds(p) {
			out = append(out, breaker)
		}
		open = open && Breaker{Worse: cluster.Worse - breaker.Worse, Of: cluster.Of - breaker.Of}.exceeds(p)
	}

	if open {
		out = append(out, cluster)
	}

	slices.SortFunc(out, func(x, y Breaker) int { return cmp.Compare(x.Namespace, y.Namespace) })
	return out
}

// UnderWay returns the number of workloads that are being lowered or watched.
func (b *BudgetTracker) UnderWay() int { return b.total }
