// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

// newReaction returns a workload whose pods request what is recommended, and in which pod web-1 uses an amount of CPU.
func newReaction(t *testing.T, pods int, use units.MilliCPU) *fixture {
	t.Helper()

	b := newFixture(t, pods, requests(1000, 1000), requests(1000, 1000))
	b.in.Reaction = calibrate.Reaction{Headroom: 1.2, Hold: time.Hour}
	b.in.Demands = []Demand{{Pod: "web-1", Container: "app", Use: use}}

	return b
}

// expectPods fails the test unless the pods have these CPU requests.
func (b *fixture) expectPods(want ...units.MilliCPU) {
	b.t.Helper()

	var got []units.MilliCPU
	for _, p := range b.in.Pods {
		got = append(got, *p.Containers[0].Size.CPURequest)
	}

	if !slices.Equal(got, want) {
		b.t.Fatalf("pods request %v, want %v; %s, remarks %v", got, want, b.plan.Summary, b.plan.Remarks)
	}
}

// TestReaction checks that one pod alone is raised at once, held, and returned to its request after the hold without a trace in the state.
func TestReaction(t *testing.T) {
	b := newReaction(t, 3, 1500)
	b.reconcile()
	b.expectPods(1000, 1800, 1000)
	b.reconcile()

	if !slices.Equal(b.events, []string{"AdoptionReacted"}) || b.plan.RequeueAfter != time.Hour {
		t.Errorf("events %v, requeue after %v, want AdoptionReacted and one hour", b.events, b.plan.RequeueAfter)
	}

	b.wait(30 * time.Minute) // The usage is below the raised request: nothing more happens.
	b.expectPods(1000, 1800, 1000)
	b.in.Demands[0].Use = 2000
	b.reconcile()
	b.expectPods(1000, 2400, 1000)
	b.in.Demands = nil
	b.wait(59 * time.Minute)
	b.expectPods(1000, 2400, 1000)
	b.wait(2 * time.Minute)
	b.expectPods(1000, 1000, 1000)

	if len(b.in.State.Raised) != 0 || b.in.State.Phase != Resting || len(b.events) != 2 {
		t.Errorf("state %+v, events %v, want no raises, phase Resting and 2 events", b.in.State, b.events)
	}
}

// TestReactionBetweenStoreAndResize checks that a decision after the state was stored and before the pod was resized is the same plan,
// and that a second raise which was stored is no drift.
func TestReactionBetweenStoreAndResize(t *testing.T) {
	b := newReaction(t, 2, 1500)
	b.refusing = map[string]bool{"uid-1": true}
	b.reconcile()
	until := b.in.State.Raised[0].Until
	b.in.Now = b.in.Now.Add(time.Minute)
	b.reconcile()

	if len(b.plan.Resizes) != 1 || !b.in.State.Raised[0].Until.Equal(until) {
		t.Errorf("resizes %+v, raises %+v, want the stored raise repeated until %s", b.plan.Resizes, b.in.State.Raised, until)
	}

	b.refusing = nil
	b.reconcile()
	b.refusing = map[string]bool{"uid-1": true}
	b.in.Demands[0].Use = 3000
	b.reconcile()
	b.wait(2 * time.Minute)
	b.expectPods(1000, 1800)

	if b.in.State.Phase != Resting {
		t.Errorf("phase %s: %s, want Resting", b.in.State.Phase, b.in.State.Reason)
	}
}

// TestReactionLimits checks what bounds or prevents a raise.
func TestReactionLimits(t *testing.T) {
	room := units.MilliCPU(300)
	none := units.MilliCPU(0)
	for name, c := range map[string]struct {
		change func(b *fixture)
		want   units.MilliCPU
	}{
		"usage below the request": {func(b *fixture) { b.in.Demands[0].Use = 900 }, 1000},
		"little room on the node": {func(b *fixture) { b.in.Pods[1].Room = &room }, 1300},
		"no room on the node":     {func(b *fixture) { b.in.Pods[1].Room = &none }, 1000},
		"opted out":               {func(b *fixture) { b.in.OptedOut = true }, 1000},
		"blocked":                 {func(b *fixture) { b.in.Blocked = "an autoscaler acts on the request" }, 1000},
		"open breaker":            {func(b *fixture) { b.in.Allowance.BreakerOpen = "open" }, 1000},
		"closed window":           {func(b *fixture) { b.in.Allowance.WindowClosed = "closed" }, 1800},
		"spent budget":            {func(b *fixture) { b.in.Allowance.BudgetSpent = "spent" }, 1800},
		"new pods only":           {func(b *fixture) { b.in.Reach = NewPods }, 1000},
		"by eviction":             {func(b *fixture) { b.in.Reach = Recreate }, 1000},
		"too few pods":            {func(b *fixture) { b.in.MinReplicas = 5 }, 1000},
		"another pod":             {func(b *fixture) { b.in.Demands[0].Pod = "db-1" }, 1000},
		"another container":       {func(b *fixture) { b.in.Demands[0].Container = "proxy" }, 1000},
		"not resizable":           {func(b *fixture) { b.in.Pods[1].NotResizable = "it runs on Windows" }, 1000},
		"no recommendation":       {func(b *fixture) { b.in.DesiredSize = Size{} }, 1000},
		"a limit": {func(b *fixture) {
			limit := units.MilliCPU(1600)
			b.in.Pods[1].Containers[0].Size.CPULimit = &limit
		}, 1600},
		"guaranteed": {func(b *fixture) {
			b.in.Pods[1].Containers[0].Size = requestsAndLimits(1000, 1000, 1000, 1000)
		}, 1000},
		"restarts for it": {func(b *fixture) { b.in.Pods[1].Containers[0].RestartsForCPU = true }, 1000},
		"no headroom":     {func(b *fixture) { b.in.Reaction.Headroom = 1 }, 1500},
	} {
		t.Run(name, func(t *testing.T) {
			b := newReaction(t, 3, 1500)
			c.change(b)
			b.reconcile()
			b.expectPods(1000, c.want, 1000)

			if stored := len(b.in.State.Raised); (stored == 1) != (c.want > 1000) {
				t.Errorf("%d raises are stored, want one only if the pod is raised above 1000", stored)
			}
		})
	}
}

// TestReactionIsBounded checks that a workload never has more than maxRaised raised pods, whose state can be read.
func TestReactionIsBounded(t *testing.T) {
	b := newReaction(t, 80, 0)
	b.in.Demands = nil
	for i := range 80 {
		b.in.Demands = append(b.in.Demands, Demand{Pod: fmt.Sprintf("web-%d", i), Container: "app", Use: 2000})
	}

	b.reconcile()
	if b.resized != maxRaised || len(b.in.State.Raised) != maxRaised {
		t.Errorf("%d pods were raised and %d raises are stored, want %d of each", b.resized, len(b.in.State.Raised), maxRaised)
	}

	b.in.Demands = nil
	b.in.Now = b.in.Now.Add(time.Hour)
	b.reconcile()

	if b.resized != 20 { // A quarter of the pods at once.
		t.Errorf("%d pods were lowered at once, want 20", b.resized)
	}

	b.wait(10 * time.Minute)
	b.expectSize(requests(1000, 1000))
	b.in.Pods = b.in.Pods[1:] // Pods that are gone leave no raise behind.
	b.reconcile()

	if len(b.in.State.Raised) != 0 {
		t.Errorf("raises %+v, want none for pods that are gone", b.in.State.Raised)
	}
}

// TestReactionDuringLowering checks that a raised pod keeps its request while the others are lowered, and gets the lower one afterward;
// and that a withdrawal ends the raise.
func TestReactionDuringLowering(t *testing.T) {
	for _, withdraw := range []bool{false, true} {
		b := newFixture(t, 2, requests(1000, 1000), requests(500, 1000))
		b.in.Reaction = calibrate.Reaction{Headroom: 1.2, Hold: time.Hour}
		b.wait(3 * time.Minute)
		b.in.Demands = []Demand{{Pod: "web-1", Container: "app", Use: 1500}}
		b.reconcile()
		b.in.Demands = nil
		b.wait(50 * time.Minute)
		b.expectPods(512, 1800) // The rest is not worth a step.

		if withdraw {
			b.in.DesiredSize = Size{}
			b.wait(3 * time.Minute)
			b.expectPods(1000, 1000)

			if b.in.State.Phase != Untouched {
				t.Errorf("phase %s, want an untouched workload", b.in.State.Phase)
			}
			continue
		}

		b.wait(15 * time.Minute)
		b.expectPods(512, 512)
	}
}

// TestReactionDrift checks that a pod which another client set above its raised request stops adoption.
func TestReactionDrift(t *testing.T) {
	b := newReaction(t, 2, 1500)
	b.reconcile()
	b.in.Now = b.in.Now.Add(time.Minute)
	b.in.Pods[1].Containers[0].Size = requests(1801, 1000)
	b.reconcile()

	if b.in.State.Phase != Stopped {
		t.Errorf("phase %s, want Stopped after another client resized the pod", b.in.State.Phase)
	}
}
