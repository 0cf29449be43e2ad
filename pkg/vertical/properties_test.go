// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// randomPolicy returns a random policy without contradictions.
func randomPolicy(r *rand.Rand) Policy {
	p := DefaultPolicy()
	p.Up.Window = time.Duration(r.IntN(3600)) * time.Second
	p.Down.Window = time.Duration(r.IntN(36000)) * time.Second
	down := int64(r.IntN(99))
	p.Down.Thresholds = Amounts{units.CPU: down, units.Memory: down}
	up := down + int64(r.IntN(60))

	p.Up.Thresholds = Amounts{units.CPU: up, units.Memory: up}
	if r.IntN(3) == 0 {
		p.Min = Amounts{units.CPU: 1 + r.Int64N(300)}
		p.Max = Amounts{units.CPU: p.Min[units.CPU] + r.Int64N(3000)}
	}

	p.RequestsOnly = r.IntN(4) == 0
	return p
}

// randomEstimates returns random estimates, including invalid ones.
func randomEstimates(r *rand.Rand) []Estimate {
	var out []Estimate
	for i := range r.IntN(4) {
		e := Estimate{Estimator: fmt.Sprint("e", i), Priority: r.IntN(3) - 1, Value: math.Exp(r.Float64() * 12), LowerBoundOnly: r.IntN(5) == 0}
		switch r.IntN(12) {
		case 0:
			e.Value = math.NaN()
		case 1:
			e.Value = math.Inf(1 - 2*r.IntN(2))
		case 2:
			e.Value = -e.Value

		case 3:
			e.Failure = "no"
		case 4:
			e.Pending = "not yet"
		case 5:
			e.Lower = math.NaN()
			e.Upper = math.Inf(1)
		}

		out = append(out, e)
	}

	return out
}

// madeChange is a change that was applied.
type madeChange struct {
	at     time.Time
	action Action
}

// simulate repeats a decision for a series of estimates, like the controller, and returns the changes.
func simulate(in Input, steps int, next func(int) ([]Estimate, time.Duration)) (all []madeChange, end Input) {
	for i := range steps {
		estimates, passed := next(i)
		in.Estimates, in.Now = estimates, in.Now.Add(passed)
		got := Decide(in)
		if got.Action == Raise || got.Action == Lower {
			all = append(all, madeChange{in.Now, got.Action})
		}
		if got.Request > 0 {
			in.Current = got.Request
		}

		in.LastChanges = got.LastChanges
	}

	return all, in
}

// TestDecide_Windows checks that two changes in one direction are at least a window apart, and that nothing is lowered within the
// window after a raise.
func TestDecide_Windows(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := Input{Resource: units.CPU, Now: start, Policy: randomPolicy(r), Request: 1 + r.Int64N(2000)}
		in.Current = in.Request
		// The request is within the allowed range, so that nothing has to change at once.
		if in.Policy.Max[units.CPU] > 0 {
			in.Current = min(max(in.Current, in.Policy.Min[units.CPU]), in.Policy.Max[units.CPU])
		}

		in.Limit = in.Current * r.Int64N(3)
		changes, _ := simulate(in, 60, func(int) ([]Estimate, time.Duration) {
			return randomEstimates(r), time.Duration(r.IntN(1800)) * time.Second
		})

		var raised, lowered time.Time
		for _, c := range changes {
			if c.action == Raise {
				if !raised.IsZero() && c.at.Sub(raised) < in.Policy.Up.Window {
					t.Fatalf("seed %d: raised at %s and %s, want the window %s between", seed, raised, c.at, in.Policy.Up.Window)
				}

				raised = c.at
				continue
			}

			for _, before := range []time.Time{raised, lowered} {
				if !before.IsZero() && c.at.Sub(before) < in.Policy.Down.Window {
					t.Fatalf("seed %d: changed at %s and lowered at %s, want the window %s between", seed, before, c.at, in.Policy.Down.Window)
				}
			}

			lowered = c.at
		}
	}
}

// TestDecide_NoFlapping checks that estimates that vary by less than the distance of the thresholds raise a request once and never lower
// it.
func TestDecide_NoFlapping(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := DefaultPolicy()
		p.Up.Window, p.Down.Window = 0, 0 // The thresholds alone prevent flapping.
		high := 100 + r.Float64()*5000
		low := high * (0.36 + 0.6*r.Float64())
		in := Input{Resource: units.CPU, Now: start, Policy: p, Request: 50, Current: 50}

		changes, end := simulate(in, 200, func(int) ([]Estimate, time.Duration) {
			return []Estimate{estimate(low + (high-low)*r.Float64())}, time.Minute
		})
		for _, c := range changes {
			if c.action == Lower {
				t.Fatalf("seed %d: lowered with answers between %v and %v, want no reduction", seed, low, high)
			}
		}

		if end.Current > roundUp(units.CPU, high) {
			t.Fatalf("seed %d: ends at %d, want at most the highest answer %v", seed, end.Current, high)
		}
	}
}

// TestDecide_Settles checks that constant estimates cause at most one change.
func TestDecide_Settles(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := Input{Resource: units.CPU, Now: start, Policy: randomPolicy(r), Request: 1 + r.Int64N(2000)}
		in.Current = in.Request

		need := estimate(math.Exp(r.Float64() * 9))
		changes, _ := simulate(in, 100, func(int) ([]Estimate, time.Duration) { return []Estimate{need}, time.Hour })
		if len(changes) > 1 {
			t.Fatalf("seed %d: changes %v with one constant answer, want at most one", seed, changes)
		}
	}
}

// TestDecide_Random checks that a decision for arbitrary input is an allowed size or none, with a reason.
func TestDecide_Random(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 4))
		for _, resource := range Resources() {
			in := Input{Resource: resource, Now: start, Policy: randomPolicy(r), Estimates: randomEstimates(r), Request: r.Int64N(3000), NodeCapacity: r.Int64N(2) * 4000}
			in.Current = in.Request

			in.Limit = in.Request * r.Int64N(3)
			got := Decide(in)
			if got.Reason == "" {
				t.Fatalf("seed %d: %+v has no reason, want one", seed, got)
			}
			if got.Request < 0 || got.Target < 0 || got.Limit < 0 {
				t.Fatalf("seed %d: %+v, want no negative amount", seed, got)
			}
			if (got.Action == Raise) != (got.Request > in.Current) || (got.Action == Lower) != (got.Request > 0 && got.Request < in.Current) {
				t.Fatalf("seed %d: %s from %d to %d, want the action to match the change", seed, got.Action, in.Current, got.Request)
			}
			if got.Limit > 0 && got.Limit < got.Request {
				t.Fatalf("seed %d: %+v, want a limit of at least the request", seed, got)
			}

			if high := in.Policy.Max[resource]; got.Target > 0 && high > 0 && got.Target > high {
				t.Fatalf("seed %d: %+v, want a target of at most maxAllowed", seed, got)
			}

			if got.Lower > got.Target || got.Upper > 0 && got.Upper < got.Target {
				t.Fatalf("seed %d: %+v, want the target within its bounds", seed, got)
			}
		}
	}
}

// TestDecide_Monotone checks that a larger estimate never lowers the target.
func TestDecide_Monotone(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 5))
		in := Input{Resource: units.Memory, Now: start, Policy: randomPolicy(r), Estimates: randomEstimates(r), Request: r.Int64N(3000)}
		if len(in.Estimates) == 0 {
			continue
		}

		before := Decide(in)
		more := append([]Estimate(nil), in.Estimates...)
		more[r.IntN(len(more))].Value *= 2

		in.Estimates = more
		if after := Decide(in); after.Target < before.Target && before.Target > 0 {
			t.Fatalf("seed %d: %+v, then %+v with a higher answer, want no lower target", seed, before, after)
		}
	}
}
