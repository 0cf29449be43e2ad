// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// TestDecide_LowersInSteps: requests are lowered in watched steps of a fifth, a quarter of the pods at a time, down to the goal.
func TestDecide_LowersInSteps(t *testing.T) {
	b := newFixture(t, 8, requests(1000, 1000), requests(500, 1000))
	b.reconcile()
	b.expectPhase(Lowering)

	if b.resized != 2 {
		t.Errorf("%d pods at once, want a quarter of 8", b.resized)
	}

	b.wait(5 * time.Minute)
	b.expectPhase(Watching)
	b.expectSize(requests(800, 1000))
	b.wait(6 * time.Minute)

	if b.in.State.Steps != 2 {
		t.Errorf("%d steps after 11 minutes, want 2", b.in.State.Steps)
	}

	b.wait(time.Hour)
	b.expectPhase(Resting)
	b.expectSize(requests(512, 1000)) // Within 5 % of the goal.

	if b.in.State.Steps != 3 || b.plan.Summary != "as recommended" || b.plan.RequeueAfter != 0 {
		t.Errorf("%d steps, summary %q, requeue after %s, want 3, \"as recommended\" and none", b.in.State.Steps, b.plan.Summary, b.plan.RequeueAfter)
	}
	if size, ok := b.in.State.NewPodSize(); !ok || !size.Equal(appSize(requests(512, 1000))) {
		t.Errorf("NewPodSize = %s, %v, want %s", size, ok, appSize(requests(512, 1000)))
	}
	if !b.in.State.Original.Equal(appSize(requests(1000, 1000))) || b.in.State.Owner != "kubectl" {
		t.Errorf("original size %s of %s, want %s of kubectl", b.in.State.Original, b.in.State.Owner, appSize(requests(1000, 1000)))
	}
}

// TestDecide_RaisesAtOnce: increases apply at once to all pods, despite closed windows and spent budgets, and survive a rollback of another
// resource.
func TestDecide_RaisesAtOnce(t *testing.T) {
	b := newFixture(t, 8, requests(100, 1000), requests(1000, 500))
	b.in.Allowance = Allowance{WindowClosed: "night", BudgetSpent: "enough"}
	b.reconcile()
	b.expectSize(requests(1000, 1000))
	b.expectPhase(Resting)
	b.in.Allowance = Allowance{}
	b.wait(2 * time.Minute)

	b.expectSize(requests(1000, 800))
	b.in.DesiredSize = appSize(requests(2000, 500))
	b.reconcile()
	b.expectSize(requests(2000, 800))
	b.in.Signals.KilledAt = b.in.Now
	b.reconcile()
	b.expectSize(requests(2000, 1000))
}

// TestDecide_RollsBack: each kind of regression reverts the last step for all pods at once and starts the cool-down.
func TestDecide_RollsBack(t *testing.T) {
	ratio := func(v units.Ratio) *units.Ratio { return &v }
	for name, harm := range map[string]func(*fixture){
		"OOM kill":             func(b *fixture) { b.in.Pods[1].Containers[0].KilledAt = b.in.Now },
		"OOM kill of one gone": func(b *fixture) { b.in.Signals.KilledAt = b.in.Now },
		"restart":              func(b *fixture) { b.in.Pods[1].Containers[0].EndedAt = b.in.Now },
		"not ready":            func(b *fixture) { b.in.Pods[1].Ready, b.in.Pods[1].UnreadySince = false, b.in.Now.Add(-time.Minute) },
		"throttled":            func(b *fixture) { b.in.Signals.Throttled = ratio(0.4) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, 4, requests(1000, 1000), requests(500, 500))
			b.in.Signals.Throttled = ratio(0.1)
			b.wait(3 * time.Minute)
			b.expectSize(requests(800, 800))
			harm(b)
			b.reconcile()
			b.expectSize(requests(1000, 1000))
			b.reconcile()
			b.expectPhase(Held)

			if !slices.Contains(b.events, "AdoptionRolledBack") || !b.in.State.HeldUntil.Equal(b.in.Now.Add(b.in.Policy.CoolDown)) {
				t.Errorf("events %v, held until %s, want AdoptionRolledBack and a cool-down from now", b.events, b.in.State.HeldUntil)
			}
			if size, ok := b.in.State.NewPodSize(); ok {
				t.Errorf("NewPodSize = %s, want none: the template has the size before the step", size)
			}

			b.wait(time.Hour)
			b.expectSize(requests(1000, 1000))
		})
	}
}

// TestDecide_SecondKill: when one step back was not enough, the original size is restored.
func TestDecide_SecondKill(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(1000, 200))
	b.wait(15 * time.Minute)
	b.expectSize(requests(1000, 640))
	b.in.Pods[0].Containers[0].KilledAt = b.in.Now
	b.wait(2 * time.Minute)

	b.expectPhase(Held)
	b.expectSize(requests(1000, 800))
	b.in.Pods[0].Containers[0].KilledAt = b.in.Now
	b.wait(2 * time.Minute)
	b.expectPhase(Held)
	b.expectSize(requests(1000, 1000))
}

// TestDecide_KilledAfterWatch: for a day after the watch an OOM kill, but no other restart, still reverts the last step.
func TestDecide_KilledAfterWatch(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(1000, 800))
	b.wait(time.Hour)
	b.expectPhase(Resting)
	b.in.Pods[0].Containers[0].EndedAt = b.in.Now
	b.reconcile()
	b.expectSize(requests(1000, 800))
	b.in.Pods[0].Containers[0].KilledAt = b.in.Now
	b.reconcile()
	b.expectSize(requests(1000, 1000))
}

// TestDecide_StopsAfterRollbacks: three rollbacks in a row stop adoption.
func TestDecide_StopsAfterRollbacks(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(500, 500))
	for range 3 {
		for range 10 * 60 {
			b.wait(time.Minute)

			if b.in.State.UnderWay() {
				break
			}
		}

		b.in.Pods[0].Containers[0].KilledAt = b.in.Now
		b.wait(time.Minute)
	}

	b.expectPhase(Stopped)
	b.expectSize(requests(1000, 1000))
	b.in.DesiredSize = Size{}
	b.reconcile()
	b.expectPhase(Untouched)
}

// TestDecide_Drift: adoption stops when another client changes the template or a pod.
func TestDecide_Drift(t *testing.T) {
	for name, write := range map[string]func(*fixture){
		"template":           func(b *fixture) { b.in.Template = appSize(requests(1500, 1000)) },
		"template, a limit":  func(b *fixture) { b.in.Template = appSize(requestsAndLimits(1000, 2000, 1000, 0)) },
		"template, no value": func(b *fixture) { b.in.Template = appSize(requests(0, 1000)) },
		"a pod":              func(b *fixture) { b.in.Pods[0].Containers[0].Size = requests(777, 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, 2, requests(1000, 1000), requests(800, 1000))
			b.wait(20 * time.Minute)
			b.expectPhase(Resting)
			write(b)
			b.reconcile()
			b.expectPhase(Stopped)

			if b.resized != 0 || !slices.Contains(b.events, "AdoptionStopped") {
				t.Errorf("%d pods resized, events %v, want none and AdoptionStopped", b.resized, b.events)
			}
			if _, ok := b.in.State.NewPodSize(); ok {
				t.Error("NewPodSize of a stopped workload = true, want false")
			}

			b.wait(time.Hour)
			if b.resized != 0 {
				t.Errorf("%d pods resized after adoption stopped, want none", b.resized)
			}
		})
	}

	b := newFixture(t, 2, requests(1000, 1000), requests(800, 1000))
	b.wait(20 * time.Minute)

	// A new pod that another webhook changed is left alone and does not count as drift.
	foreign := newPod(7, requests(333, 1000))
	foreign.Created = b.in.Now
	b.in.Pods = append(b.in.Pods, foreign)
	b.reconcile()
	b.expectPhase(Resting)

	if b.resized != 0 || len(b.plan.Remarks) != 1 {
		t.Errorf("%d pods resized, remarks %v, want none and one remark", b.resized, b.plan.Remarks)
	}

	// A pod that got the size of its template while the webhook was down is resized.
	b.in.Pods[2] = newPod(8, requests(1000, 1000))
	b.reconcile()
	b.expectSize(requests(800, 1000))
}

// TestDecide_Obstacles: each obstacle prevents every change, and the summary names it.
func TestDecide_Obstacles(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"opted out":    {func(in *Input) { in.OptedOut = true }, "opted out"},
		"ending":       {func(in *Input) { in.Terminating = true }, "being deleted"},
		"stale":        {func(in *Input) { in.Stale = "too old" }, "too old"},
		"breaker":      {func(in *Input) { in.Allowance.BreakerOpen = "breaker" }, "breaker"},
		"window":       {func(in *Input) { in.Allowance.WindowClosed = "closed" }, "closed"},
		"budget":       {func(in *Input) { in.Allowance.BudgetSpent = "full" }, "full"},
		"roll-out":     {func(in *Input) { in.RolloutInProgress = true }, "roll-out"},
		"no pods":      {func(in *Input) { in.Pods = nil }, "no pod"},
		"not ready":    {func(in *Input) { in.Pods[0].Ready = false }, "not ready"},
		"just killed":  {func(in *Input) { in.Signals.KilledAt = in.Now.Add(-time.Minute) }, "killed"},
		"just crashed": {func(in *Input) { in.Pods[1].Containers[0].EndedAt = in.Now.Add(-time.Minute) }, "restarted"},
		"near enough":  {func(in *Input) { in.DesiredSize = appSize(requests(970, 1000)) }, "as recommended"},
		"at the floor": {func(in *Input) {
			in.Template = appSize(requests(10, 16))
			in.DesiredSize = appSize(requests(1, 1))
		}, "as recommended"},
		"not wanted": {func(in *Input) { in.DesiredSize = Size{} }, ""},
	} {
		b := newFixture(t, 2, requests(1000, 1000), requests(500, 500))
		c.change(&b.in)
		b.reconcile()

		if b.resized != 0 || b.in.State.Phase != Untouched || !strings.Contains(b.plan.Summary, c.want) {
			t.Errorf("%s: %d pods resized, phase %q, summary %q, want an untouched workload and %q", name, b.resized, b.in.State.Phase, b.plan.Summary, c.want)
		}
	}
}

// TestDecide_Withdraws: switching adoption off restores the original size and deletes the state.
func TestDecide_Withdraws(t *testing.T) {
	b := newFixture(t, 4, requests(1000, 1000), requests(200, 2000))
	b.wait(2 * time.Hour)
	b.in.DesiredSize = Size{}
	b.wait(5 * time.Minute)
	b.expectPhase(Untouched)
	b.expectSize(requests(1000, 1000))
}

// TestDecide_Template: the pod template is changed only on request, after pods have proved the size, and is restored.
func TestDecide_Template(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(800, 1000))
	b.wait(time.Hour)

	if b.in.State.Template != nil {
		t.Fatalf("template %v was written, want none unless UpdateTemplate is set", b.in.State.Template)
	}

	b.in.UpdateTemplate = true
	if plan := b.reconcile(); plan.Template == nil || !b.in.Template.Equal(appSize(requests(800, 1000))) {
		t.Fatalf("Decide = %+v, want the size in the template", plan)
	}

	b.wait(time.Hour)
	b.expectPhase(Resting)

	if b.plan.Template != nil || !b.in.State.TemplateSeen {
		t.Errorf("template %v, seen %t, want it written once and read back", b.plan.Template, b.in.State.TemplateSeen)
	}

	saved := b.in.State.Clone()
	b.in.Template = appSize(requests(1000, 1000))
	b.reconcile()
	b.expectPhase(Stopped)
	b.in.State = saved

	b.in.Template = appSize(requests(800, 1000))
	b.in.DesiredSize = Size{}
	if plan := b.reconcile(); plan.Template == nil || !plan.RestoreTemplate || !b.in.Template.Equal(appSize(requests(1000, 1000))) {
		t.Errorf("Decide after adoption was switched off = %+v, want the original template restored", plan)
	}

	b.wait(10 * time.Minute)
	b.expectPhase(Untouched)
	b.expectSize(requests(1000, 1000))
}

// TestDecide_Replicas: replicas are raised at once, lowered by a fifth per step, stay above the disruption budgets, and yield to the owner.
func TestDecide_Replicas(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	b := newFixture(t, 10, requests(1000, 1000), requests(1000, 1000))
	b.in.DesiredSize, b.in.Template = Size{Replicas: n(2)}, Size{Replicas: n(10)}
	b.in.MinHealthy = 6
	b.wait(2 * time.Minute)

	if *b.in.Template.Replicas != 8 {
		t.Errorf("%d replicas after the first step, want 8", *b.in.Template.Replicas)
	}

	b.wait(2 * time.Hour)
	if *b.in.Template.Replicas != 6 {
		t.Errorf("%d replicas, want the 6 of the disruption budget", *b.in.Template.Replicas)
	}

	b.in.DesiredSize = Size{Replicas: n(20)}
	b.reconcile()

	if *b.in.Template.Replicas != 20 {
		t.Errorf("%d replicas, want 20 at once", *b.in.Template.Replicas)
	}

	b.in.Template.Replicas = n(13)
	b.reconcile()
	b.expectPhase(Stopped)
}
