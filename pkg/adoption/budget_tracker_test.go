// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestStatesOfOneNamespaceDoNotStopOthers: a tenant who writes states of the own workloads spends no more of the budget of the cluster than
// MaxPerNamespace, and does not open the circuit breaker for others.
func TestStatesOfOneNamespaceDoNotStopOthers(t *testing.T) {
	p := DefaultPolicy()
	tracker := func(s State) *BudgetTracker {
		b := NewBudgetTracker()
		for i := range 30 {
			b.Set(Key{Namespace: "tenant", Name: fmt.Sprint(i)}, s)
		}

		return b
	}

	for name, s := range map[string]State{
		"outcomes in the future": {Phase: Stopped, Outcomes: []Outcome{{At: noon.AddDate(100, 0, 0), Regression: "killed"}}},
		"outcomes of now":        {Phase: Stopped, Outcomes: []Outcome{{At: noon, Regression: "killed"}}},
		"under way for ever":     {Phase: Watching, PhaseSince: noon.AddDate(100, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			b := tracker(s)
			if got := b.AllowanceFor(Key{Namespace: "shop", Name: "web"}, p, noon); got != (Allowance{}) {
				t.Errorf("AllowanceFor another namespace = %+v, want no limits", got)
			}
		})
	}

	if got := tracker(State{Phase: Stopped, Outcomes: []Outcome{{At: noon, Regression: "killed"}}}).AllowanceFor(Key{Namespace: "tenant", Name: "x"}, p, noon); got.BreakerOpen == "" {
		t.Error("AllowanceFor the tenant's namespace has no open breaker, want one")
	}
}

// TestAllowanceBesideHostileStates checks for random states that one namespace neither spends more than MaxPerNamespace of the budget of the
// cluster, nor opens a circuit breaker of another one that the outcomes of others do not open.
func TestAllowanceBesideHostileStates(t *testing.T) {
	p := DefaultPolicy()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		state := func(latest time.Duration) State {
			s := State{Phase: []Phase{Resting, Lowering, Watching, Held, Stopped}[rng.IntN(5)]}
			for range rng.IntN(4) {
				o := Outcome{At: noon.Add(latest - time.Duration(rng.Int64N(int64(48*time.Hour))))}
				if rng.IntN(3) == 0 {
					o.Regression = "killed"
				}

				s.Outcomes = append(s.Outcomes, o)
			}

			return s
		}

		alone := NewBudgetTracker()
		beside := NewBudgetTracker()
		underWay := map[string]int{}
		for i := range rng.IntN(40) {
			key := Key{Namespace: fmt.Sprintf("shop-%d", rng.IntN(8)), Name: fmt.Sprint(i)}
			s := state(0)
			if s.UnderWay() {
				if underWay[key.Namespace] == p.MaxPerNamespace {
					continue
				}

				underWay[key.Namespace]++
			}

			alone.Set(key, s)
			beside.Set(key, s)
		}

		for i := range rng.IntN(60) {
			beside.Set(Key{Namespace: "tenant", Name: fmt.Sprint(i)}, state(100*time.Hour))
		}

		worse, of := 0, 0
		for _, e := range alone.entries {
			lowered, bad := countOutcomes(e.outcomes, p)
			worse += bad
			of += lowered
		}

		for n := range 9 {
			key := Key{Namespace: fmt.Sprintf("shop-%d", n), Name: "web"}
			without := alone.AllowanceFor(key, p, noon)

			with := beside.AllowanceFor(key, p, noon)
			if alone.UnderWay()+p.MaxPerNamespace < p.MaxPerCluster && with.BudgetSpent != without.BudgetSpent {
				t.Fatalf("seed %d: budget of %s: %q, want as without the tenant: %q", seed, key.Namespace, with.BudgetSpent, without.BudgetSpent)
			}

			if opens := worse >= p.BreakerMinWorkloads && float64(worse) > float64(p.BreakerShare)*float64(of); with.BreakerOpen != "" && without.BreakerOpen == "" && !opens {
				t.Fatalf("seed %d: the tenant opens the breaker of %s: %s, want it closed, others have %d of %d", seed, key.Namespace, with.BreakerOpen, worse, of)
			}
		}
	}
}

// countOutcomes returns 1 for a workload that was lowered, and 1 for one that got worse, within the window before noon.
func countOutcomes(outcomes []Outcome, p Policy) (lowered, bad int) {
	for _, o := range outcomes {
		if age := noon.Sub(o.At); age < p.BreakerWindow {
			lowered = 1

			if o.Regression != "" {
				bad = 1
			}
		}
	}

	return lowered, bad
}
