// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

// TestDown: down in steps of a fifth, each watched, a quarter of the pods at a time, to the goal and no further.
func TestDown(t *testing.T) {
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
		t.Errorf("%d steps after 11 minutes", b.in.State.Steps)
	}
	b.wait(time.Hour)
	b.expectPhase(Resting)
	b.expectSize(requests(512, 1000)) // Within 5 % of the goal.
	if b.in.State.Steps != 3 || b.plan.Summary != "as recommended" || b.plan.RequeueAfter != 0 {
		t.Errorf("%d steps, %q, again in %s", b.in.State.Steps, b.plan.Summary, b.plan.RequeueAfter)
	}
	if size, ok := b.in.State.NewPodSize(); !ok || !size.Equal(appSize(requests(512, 1000))) {
		t.Errorf("new pods get %s", size)
	}
	if !b.in.State.Original.Equal(appSize(requests(1000, 1000))) || b.in.State.Owner != "kubectl" {
		t.Errorf("earlier %s of %s", b.in.State.Original, b.in.State.Owner)
	}
}

// TestUp: up at once, all pods, whatever window or budget; and what is raised while something else is watched stays raised.
func TestUp(t *testing.T) {
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

// TestRollBack: whatever gets worse takes the last step back, all pods at once, and then nothing is lowered for a while.
func TestRollBack(t *testing.T) {
	ratio := func(v series.Ratio) *series.Ratio { return &v }
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
				t.Errorf("told %v, held until %s", b.events, b.in.State.HeldUntil)
			}
			if size, _ := b.in.State.NewPodSize(); !size.Equal(appSize(requests(1000, 1000))) {
				t.Errorf("new pods get %s", size)
			}
			b.wait(time.Hour)
			b.expectSize(requests(1000, 1000))
		})
	}
}

// TestKilledOn: where one step back was not enough, everything is as it was before adoption.
func TestKilledOn(t *testing.T) {
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

// TestKilledLater: a kill after the watch, for a day, takes the last step back as well; a restart does not.
func TestKilledLater(t *testing.T) {
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

// TestGivesUp: after three roll-backs in a row a person has to look.
func TestGivesUp(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(500, 500))
	for range 3 {
		for range 10 * 60 {
			if b.wait(time.Minute); b.in.State.UnderWay() {
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

// TestDrift: who writes back has the last word.
func TestDrift(t *testing.T) {
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
				t.Errorf("%d touched, told %v", b.resized, b.events)
			}
			if _, ok := b.in.State.NewPodSize(); ok {
				t.Error("new pods are still changed")
			}
			b.wait(time.Hour)
			if b.resized != 0 {
				t.Error("touched after it stopped")
			}
		})
	}
	b := newFixture(t, 2, requests(1000, 1000), requests(800, 1000))
	b.wait(20 * time.Minute)
	// A new pod that another webhook made so is left alone, and nobody is blamed.
	stranger := newPod(7, requests(333, 1000))
	stranger.Created = b.in.Now
	b.in.Pods = append(b.in.Pods, stranger)
	b.reconcile()
	b.expectPhase(Resting)
	if b.resized != 0 || len(b.plan.Remarks) != 1 {
		t.Errorf("touched %d, remarks %v", b.resized, b.plan.Remarks)
	}
	// One that was made of the template, while the webhook was away, gets what all have.
	b.in.Pods[2] = newPod(8, requests(1000, 1000))
	b.reconcile()
	b.expectSize(requests(800, 1000))
}

// TestHandsOff: nothing is touched where it must not be, and the state says why.
func TestHandsOff(t *testing.T) {
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
		"at the floor": {func(in *Input) { in.Template, in.DesiredSize = appSize(requests(10, 16)), appSize(requests(1, 1)) }, "as recommended"},
		"not wanted":   {func(in *Input) { in.DesiredSize = Size{} }, ""},
	} {
		b := newFixture(t, 2, requests(1000, 1000), requests(500, 500))
		c.change(&b.in)
		b.reconcile()
		if b.resized != 0 || b.in.State.Phase != Untouched || !strings.Contains(b.plan.Summary, c.want) {
			t.Errorf("%s: %d touched, phase %q, %q", name, b.resized, b.in.State.Phase, b.plan.Summary)
		}
	}
}

// TestWithdraw: no longer wanted, everything is as it was before, and forgotten.
func TestWithdraw(t *testing.T) {
	b := newFixture(t, 4, requests(1000, 1000), requests(200, 2000))
	b.wait(2 * time.Hour)
	b.in.DesiredSize = Size{}
	b.wait(5 * time.Minute)
	b.expectPhase(Untouched)
	b.expectSize(requests(1000, 1000))
}

// TestQoS: in place, a pod keeps its class, gets nothing that could not be taken back, and loses nothing that could not be
// given back.
func TestQoS(t *testing.T) {
	for name, c := range map[string]struct {
		pod, goal, want []int64
		why             string
	}{
		"burstable":                       {[]int64{100, 0, 100, 0}, []int64{50, 0, 60, 0}, []int64{50, 0, 60, 0}, ""},
		"best effort":                     {[]int64{0, 0, 0, 0}, []int64{50, 0, 60, 0}, []int64{0, 0, 0, 0}, "BestEffort"},
		"guaranteed, requests alone":      {[]int64{100, 100, 100, 100}, []int64{50, 0, 60, 0}, []int64{100, 100, 100, 100}, "QoS"},
		"guaranteed, both":                {[]int64{100, 100, 100, 100}, []int64{50, 50, 60, 60}, []int64{50, 50, 60, 60}, ""},
		"to guaranteed":                   {[]int64{50, 100, 100, 100}, []int64{100, 0, 100, 0}, []int64{50, 100, 100, 100}, "QoS"},
		"no request to add":               {[]int64{100, 0, 0, 0}, []int64{50, 0, 60, 0}, []int64{50, 0, 0, 0}, ""},
		"a request that was removed":      {[]int64{100, 0, 100, 0}, []int64{0, 0, 60, 0}, []int64{100, 0, 60, 0}, ""},
		"a limit that was removed":        {[]int64{100, 200, 100, 200}, []int64{50, 0, 60, 0}, []int64{50, 200, 60, 200}, ""},
		"no limit to add":                 {[]int64{100, 0, 100, 0}, []int64{50, 100, 60, 120}, []int64{50, 0, 60, 0}, ""},
		"a request above the pod's limit": {[]int64{100, 150, 100, 0}, []int64{500, 0, 100, 0}, []int64{100, 150, 100, 0}, ""},
	} {
		r := func(v []int64) Size { return appSize(requestsAndLimits(v[0], v[1], v[2], v[3])) }
		p := newPod(0, r(c.pod).Containers["app"])
		if name == "a request above the pod's limit" {
			c.want = []int64{150, 150, 100, 0}
		}
		got, why := p.InPlaceSize(r(c.goal))
		if !got.Equal(r(c.want)) || (c.why == "") != (why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s (%q), want %s", name, got, why, r(c.want))
		}
	}
}

// TestRestartsWithinBudget: what restarts a container is held by the disruption budget; what does not is not.
func TestRestartsWithinBudget(t *testing.T) {
	for _, c := range []struct {
		restarts          bool
		disruptions, want int
	}{{true, 0, 0}, {true, 1, 1}, {true, -1, 2}, {false, 0, 8}} {
		b := newFixture(t, 8, requests(1000, 1000), requests(1000, 2000))
		for i := range b.in.Pods {
			b.in.Pods[i].Containers[0].RestartsForMemory = c.restarts
		}
		b.in.DisruptionsAllowed = c.disruptions
		if b.reconcile(); b.resized != c.want {
			t.Errorf("%+v: %d touched", c, b.resized)
		}
	}
}

// TestSlowNodes: a node that cannot give a size does not keep the others from it, and is not asked again and again.
func TestSlowNodes(t *testing.T) {
	for _, how := range []ResizeStatus{ResizeDeferred, ResizeInfeasible, ResizeFailed, ResizeInProgress} {
		b := newFixture(t, 4, requests(1000, 1000), requests(800, 1000))
		b.reconcile()
		b.wait(time.Minute)
		b.in.Pods[0].ResizeStatus, b.in.Pods[0].ResizeMessage = how, "no room"
		b.wait(6 * time.Minute)
		if b.in.State.Phase != Watching || b.resized != 0 {
			t.Errorf("%s: phase %s, touched %d", how, b.in.State.Phase, b.resized)
		}
		if len(b.plan.Remarks) != 1 || !strings.Contains(b.plan.Remarks[0], string(how)) {
			t.Errorf("%s: remarks %v", how, b.plan.Remarks)
		}
	}
}

// TestTemplate: the pod template is changed only where that is asked for, when pods have proved the size, and goes back.
func TestTemplate(t *testing.T) {
	b := newFixture(t, 2, requests(1000, 1000), requests(800, 1000))
	b.wait(time.Hour)
	if b.in.State.Template != nil {
		t.Fatal("changed without being asked for")
	}
	b.in.UpdateTemplate = true
	if plan := b.reconcile(); plan.Template == nil || !b.in.Template.Equal(appSize(requests(800, 1000))) {
		t.Fatalf("%+v", plan)
	}
	b.wait(time.Hour)
	b.expectPhase(Resting)
	if b.plan.Template != nil || !b.in.State.TemplateSeen {
		t.Error("written again and again")
	}
	saved := b.in.State.Clone()
	b.in.Template = appSize(requests(1000, 1000))
	b.reconcile()
	b.expectPhase(Stopped)
	b.in.State, b.in.Template = saved, appSize(requests(800, 1000))
	b.in.DesiredSize = Size{}
	if plan := b.reconcile(); plan.Template == nil || !plan.RestoreTemplate || !b.in.Template.Equal(appSize(requests(1000, 1000))) {
		t.Errorf("not given back: %+v", plan)
	}
	b.wait(10 * time.Minute)
	b.expectPhase(Untouched)
	b.expectSize(requests(1000, 1000))
}

// TestReplicas: up at once, down a fifth at a time, never below what a disruption budget wants, and not against an owner.
func TestReplicas(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	b := newFixture(t, 10, requests(1000, 1000), requests(1000, 1000))
	b.in.DesiredSize, b.in.Template = Size{Replicas: n(2)}, Size{Replicas: n(10)}
	b.in.MinHealthy = 6
	b.wait(2 * time.Minute)
	if *b.in.Template.Replicas != 8 {
		t.Errorf("%d replicas after the first step", *b.in.Template.Replicas)
	}
	b.wait(2 * time.Hour)
	if *b.in.Template.Replicas != 6 {
		t.Errorf("%d replicas, a budget wants 6", *b.in.Template.Replicas)
	}
	b.in.DesiredSize = Size{Replicas: n(20)}
	if b.reconcile(); *b.in.Template.Replicas != 20 {
		t.Errorf("%d replicas", *b.in.Template.Replicas)
	}
	b.in.Template.Replicas = n(13)
	b.reconcile()
	b.expectPhase(Stopped)
}
