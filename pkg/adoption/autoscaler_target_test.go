// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// scalePoint returns the use of all pods, in millicores, at which the first target acts.
func (b *fixture) scalePoint() float64 {
	sum := 0.0
	for _, p := range b.in.Pods {
		sum += float64(p.size().sumRequests(b.in.Targets[0]))
	}

	return sum * float64(b.in.Targets[0].Percent) / 100
}

// TestAdjustTargets: after every decision the autoscaler acts at its original scale point, while requests are lowered,
// rolled back and withdrawn; targets of other containers and resources stay.
func TestAdjustTargets(t *testing.T) {
	for name, end := range map[string]func(*fixture){
		"withdrawn":   func(b *fixture) { b.in.DesiredSize = Size{} },
		"rolled back": func(b *fixture) { b.in.Signals.KilledAt = b.in.Now },
	} {
		b := newFixture(t, 7, requests(1000, 1000), requests(400, 1000))
		b.in.Targets = []Target{{Percent: 60}, {Container: "app", Percent: 50}, {Memory: true, Percent: 80}, {Container: "other", Percent: 70}}
		was := b.scalePoint()

		check := func() {
			t.Helper()

			b.reconcile()
			if now := b.scalePoint(); math.Abs(now/was-1) > 0.02 { // Targets are whole percents: half a percent of 60.
				t.Fatalf("%s: with target %s the scale point is %v, want %v", name, b.in.Targets[0], now, was)
			}
		}

		for range 400 {
			check()
			b.in.Now = b.in.Now.Add(15 * time.Second)
		}

		b.expectSize(requests(410, 1000))
		if got := b.in.Targets; got[0].Percent != 146 || got[1].Percent != 122 || got[2].Percent != 80 || got[3].Percent != 70 {
			t.Errorf("%s: targets %v, want 146, 122, 80 and 70 %%", name, got)
		}

		end(b)
		for range 10 {
			check()
			b.in.Now = b.in.Now.Add(15 * time.Second)
		}

		if name == "withdrawn" && (b.in.Targets[0].Percent != 60 || b.in.State.Phase != Untouched) {
			t.Errorf("%s: targets %v in phase %q, want 60 %% and an untouched workload", name, b.in.Targets, b.in.State.Phase)
		}
	}
}

// TestAdjustTargets_Drift: a target that another client has set stops adoption; a lost write of adoption does not.
func TestAdjustTargets_Drift(t *testing.T) {
	begin := func() *fixture {
		b := newFixture(t, 1, requests(1000, 1000), requests(800, 1000))
		b.in.Targets = []Target{{Percent: 60}}
		b.reconcile()

		return b
	}

	b := begin()
	b.in.Targets[0].Percent = 60 // The write of 75 was lost.
	if plan := b.reconcile(); plan.State.Phase == Stopped || len(plan.Targets) != 1 || plan.Targets[0].Percent != 75 {
		t.Errorf("Decide after a lost write = %+v, want the target 75 written again", plan)
	}

	b = begin()
	b.in.Targets[0].Percent = 90
	if plan := b.reconcile(); plan.State.Phase != Stopped || !strings.Contains(plan.Summary, "cpu at 90 %") || len(plan.Targets)+len(plan.Resizes) > 0 {
		t.Errorf("Decide after another client set 90 %% = %+v, want it stopped without changes", plan)
	}
}

// TestDecide_Blocked: a blocked workload starts no change, but rolls back and withdraws earlier ones.
func TestDecide_Blocked(t *testing.T) {
	for name, want := range map[string]int64{"up": 2000, "down": 500} {
		b := newFixture(t, 2, requests(1000, 1000), requests(want, 1000))
		b.in.Blocked = "a foreign autoscaler"
		b.wait(time.Hour)
		b.expectPhase(Untouched)
		b.expectSize(requests(1000, 1000))

		if !strings.Contains(b.plan.Summary, "foreign autoscaler") {
			t.Errorf("%s: summary %q, want it to name the foreign autoscaler", name, b.plan.Summary)
		}
	}

	b := newFixture(t, 2, requests(1000, 1000), requests(500, 1000))
	b.wait(3 * time.Minute)
	b.in.Blocked = "a foreign autoscaler"
	b.wait(time.Hour)
	b.expectSize(requests(800, 1000))
	b.in.Signals.KilledAt = b.in.Now
	b.reconcile()

	b.expectSize(requests(1000, 1000))
	b = newFixture(t, 2, requests(1000, 1000), requests(2000, 1000))
	b.reconcile()
	b.in.Blocked = "a foreign autoscaler"
	b.in.DesiredSize = Size{}
	b.wait(5 * time.Minute)
	b.expectSize(requests(1000, 1000))
}

// TestAdjustTargets_Invariants: for random pods and requests a target stays at 1 or more and gets back its original value.
func TestAdjustTargets_Invariants(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 15 {
		from := 1 + r.Int64N(100000)
		want := 1 + r.Int64N(100000)
		percent := 1 + r.Int32N(1000)

		b := newFixture(t, r.IntN(10), requests(from, 100), requests(want, 100))
		b.in.Targets = []Target{{Percent: percent}}
		for range 60 {
			b.reconcile()
			if got := b.in.Targets[0].Percent; got < 1 {
				t.Fatalf("from %dm to %dm: target %d", from, want, got)
			}

			b.in.Now = b.in.Now.Add(30 * time.Second)
		}

		b.in.DesiredSize = Size{}
		b.wait(10 * time.Minute)

		if got := b.in.Targets[0].Percent; got != percent || b.in.State.Phase != Untouched {
			t.Fatalf("from %dm to %dm with %d pods: target %d, it was %d; phase %q", from, want, len(b.in.Pods), got, percent, b.in.State.Phase)
		}
	}
}
