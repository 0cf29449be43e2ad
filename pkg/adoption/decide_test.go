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
	b := newBed(t, 8, of(1000, 1000), of(500, 1000))
	b.look()
	b.phase(Lowering)
	if b.touched != 2 {
		t.Errorf("%d pods at once, want a quarter of 8", b.touched)
	}
	b.wait(5 * time.Minute)
	b.phase(Watching)
	b.all(of(800, 1000))
	b.wait(6 * time.Minute)
	if b.in.State.Steps != 2 {
		t.Errorf("%d steps after 11 minutes", b.in.State.Steps)
	}
	b.wait(time.Hour)
	b.phase(Resting)
	b.all(of(512, 1000)) // Within 5 % of the goal.
	if b.in.State.Steps != 3 || b.last.Summary != "as recommended" || b.last.Again != 0 {
		t.Errorf("%d steps, %q, again in %s", b.in.State.Steps, b.last.Summary, b.last.Again)
	}
	if size, ok := b.in.State.ForNewPods(); !ok || !size.Is(app(of(512, 1000))) {
		t.Errorf("new pods get %s", size)
	}
	if !b.in.State.Earlier.Is(app(of(1000, 1000))) || b.in.State.Owner != "kubectl" {
		t.Errorf("earlier %s of %s", b.in.State.Earlier, b.in.State.Owner)
	}
}

// TestUp: up at once, all pods, whatever window or budget; and what is raised while something else is watched stays raised.
func TestUp(t *testing.T) {
	b := newBed(t, 8, of(100, 1000), of(1000, 500))
	b.in.Room = Room{Closed: "night", Full: "enough"}
	b.look()
	b.all(of(1000, 1000))
	b.phase(Resting)
	b.in.Room = Room{}
	b.wait(2 * time.Minute)
	b.all(of(1000, 800))
	b.in.Wanted = app(of(2000, 500))
	b.look()
	b.all(of(2000, 800))
	b.in.Signals.KilledAt = b.in.Now
	b.look()
	b.all(of(2000, 1000))
}

// TestRollBack: whatever gets worse takes the last step back, all pods at once, and then nothing is lowered for a while.
func TestRollBack(t *testing.T) {
	ratio := func(v series.Ratio) *series.Ratio { return &v }
	for name, harm := range map[string]func(*bed){
		"OOM kill":             func(b *bed) { b.in.Pods[1].Containers[0].KilledAt = b.in.Now },
		"OOM kill of one gone": func(b *bed) { b.in.Signals.KilledAt = b.in.Now },
		"restart":              func(b *bed) { b.in.Pods[1].Containers[0].EndedAt = b.in.Now },
		"not ready":            func(b *bed) { b.in.Pods[1].Ready, b.in.Pods[1].UnreadySince = false, b.in.Now.Add(-time.Minute) },
		"throttled":            func(b *bed) { b.in.Signals.Throttled = ratio(0.4) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 4, of(1000, 1000), of(500, 500))
			b.in.Signals.Throttled = ratio(0.1)
			b.wait(3 * time.Minute)
			b.all(of(800, 800))
			harm(b)
			b.look()
			b.all(of(1000, 1000))
			b.look()
			b.phase(Held)
			if !slices.Contains(b.events, "AdoptionRolledBack") || !b.in.State.HeldUntil.Equal(b.in.Now.Add(b.in.Policy.CoolDown)) {
				t.Errorf("told %v, held until %s", b.events, b.in.State.HeldUntil)
			}
			if size, _ := b.in.State.ForNewPods(); !size.Is(app(of(1000, 1000))) {
				t.Errorf("new pods get %s", size)
			}
			b.wait(time.Hour)
			b.all(of(1000, 1000))
		})
	}
}

// TestKilledOn: where one step back was not enough, everything is as it was before adoption.
func TestKilledOn(t *testing.T) {
	b := newBed(t, 2, of(1000, 1000), of(1000, 200))
	b.wait(15 * time.Minute)
	b.all(of(1000, 640))
	b.in.Pods[0].Containers[0].KilledAt = b.in.Now
	b.wait(2 * time.Minute)
	b.phase(Held)
	b.all(of(1000, 800))
	b.in.Pods[0].Containers[0].KilledAt = b.in.Now
	b.wait(2 * time.Minute)
	b.phase(Held)
	b.all(of(1000, 1000))
}

// TestKilledLater: a kill after the watch, for a day, takes the last step back as well; a restart does not.
func TestKilledLater(t *testing.T) {
	b := newBed(t, 2, of(1000, 1000), of(1000, 800))
	b.wait(time.Hour)
	b.phase(Resting)
	b.in.Pods[0].Containers[0].EndedAt = b.in.Now
	b.look()
	b.all(of(1000, 800))
	b.in.Pods[0].Containers[0].KilledAt = b.in.Now
	b.look()
	b.all(of(1000, 1000))
}

// TestGivesUp: after three roll-backs in a row a person has to look.
func TestGivesUp(t *testing.T) {
	b := newBed(t, 2, of(1000, 1000), of(500, 500))
	for range 3 {
		for range 10 * 60 {
			if b.wait(time.Minute); b.in.State.UnderWay() {
				break
			}
		}
		b.in.Pods[0].Containers[0].KilledAt = b.in.Now
		b.wait(time.Minute)
	}
	b.phase(Stopped)
	b.all(of(1000, 1000))
	b.in.Wanted = Size{}
	b.look()
	b.phase(Untouched)
}

// TestDrift: who writes back has the last word.
func TestDrift(t *testing.T) {
	for name, write := range map[string]func(*bed){
		"template":           func(b *bed) { b.in.Template = app(of(1500, 1000)) },
		"template, a limit":  func(b *bed) { b.in.Template = app(limited(1000, 2000, 1000, 0)) },
		"template, no value": func(b *bed) { b.in.Template = app(of(0, 1000)) },
		"a pod":              func(b *bed) { b.in.Pods[0].Containers[0].Size = of(777, 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 2, of(1000, 1000), of(800, 1000))
			b.wait(20 * time.Minute)
			b.phase(Resting)
			write(b)
			b.look()
			b.phase(Stopped)
			if b.touched != 0 || !slices.Contains(b.events, "AdoptionStopped") {
				t.Errorf("%d touched, told %v", b.touched, b.events)
			}
			if _, ok := b.in.State.ForNewPods(); ok {
				t.Error("new pods are still changed")
			}
			b.wait(time.Hour)
			if b.touched != 0 {
				t.Error("touched after it stopped")
			}
		})
	}
	b := newBed(t, 2, of(1000, 1000), of(800, 1000))
	b.wait(20 * time.Minute)
	// A new pod that another webhook made so is left alone, and nobody is blamed.
	stranger := aPod(7, of(333, 1000))
	stranger.Created = b.in.Now
	b.in.Pods = append(b.in.Pods, stranger)
	b.look()
	b.phase(Resting)
	if b.touched != 0 || len(b.last.Remarks) != 1 {
		t.Errorf("touched %d, remarks %v", b.touched, b.last.Remarks)
	}
	// One that was made of the template, while the webhook was away, gets what all have.
	b.in.Pods[2] = aPod(8, of(1000, 1000))
	b.look()
	b.all(of(800, 1000))
}

// TestHandsOff: nothing is touched where it must not be, and the state says why.
func TestHandsOff(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"opted out":    {func(in *Input) { in.OptedOut = true }, "opted out"},
		"ending":       {func(in *Input) { in.Ending = true }, "being deleted"},
		"stale":        {func(in *Input) { in.Stale = "too old" }, "too old"},
		"breaker":      {func(in *Input) { in.Room.Broken = "breaker" }, "breaker"},
		"window":       {func(in *Input) { in.Room.Closed = "closed" }, "closed"},
		"budget":       {func(in *Input) { in.Room.Full = "full" }, "full"},
		"roll-out":     {func(in *Input) { in.Rolling = true }, "roll-out"},
		"no pods":      {func(in *Input) { in.Pods = nil }, "no pod"},
		"not ready":    {func(in *Input) { in.Pods[0].Ready = false }, "not ready"},
		"just killed":  {func(in *Input) { in.Signals.KilledAt = in.Now.Add(-time.Minute) }, "killed"},
		"just crashed": {func(in *Input) { in.Pods[1].Containers[0].EndedAt = in.Now.Add(-time.Minute) }, "restarted"},
		"near enough":  {func(in *Input) { in.Wanted = app(of(970, 1000)) }, "as recommended"},
		"at the floor": {func(in *Input) { in.Template, in.Wanted = app(of(10, 16)), app(of(1, 1)) }, "as recommended"},
		"not wanted":   {func(in *Input) { in.Wanted = Size{} }, ""},
	} {
		b := newBed(t, 2, of(1000, 1000), of(500, 500))
		c.change(&b.in)
		b.look()
		if b.touched != 0 || b.in.State.Phase != Untouched || !strings.Contains(b.last.Summary, c.want) {
			t.Errorf("%s: %d touched, phase %q, %q", name, b.touched, b.in.State.Phase, b.last.Summary)
		}
	}
}

// TestWithdraw: no longer wanted, everything is as it was before, and forgotten.
func TestWithdraw(t *testing.T) {
	b := newBed(t, 4, of(1000, 1000), of(200, 2000))
	b.wait(2 * time.Hour)
	b.in.Wanted = Size{}
	b.wait(5 * time.Minute)
	b.phase(Untouched)
	b.all(of(1000, 1000))
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
		r := func(v []int64) Size { return app(limited(v[0], v[1], v[2], v[3])) }
		p := aPod(0, r(c.pod).Containers["app"])
		if name == "a request above the pod's limit" {
			c.want = []int64{150, 150, 100, 0}
		}
		got, why := p.Aim(r(c.goal))
		if !got.Is(r(c.want)) || (c.why == "") != (why == "") || !strings.Contains(why, c.why) {
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
		b := newBed(t, 8, of(1000, 1000), of(1000, 2000))
		for i := range b.in.Pods {
			b.in.Pods[i].Containers[0].RestartsForMemory = c.restarts
		}
		b.in.Disruptions = c.disruptions
		if b.look(); b.touched != c.want {
			t.Errorf("%+v: %d touched", c, b.touched)
		}
	}
}

// TestSlowNodes: a node that cannot give a size does not keep the others from it, and is not asked again and again.
func TestSlowNodes(t *testing.T) {
	for _, how := range []Resize{Deferred, Infeasible, Failed, InProgress} {
		b := newBed(t, 4, of(1000, 1000), of(800, 1000))
		b.look()
		b.wait(time.Minute)
		b.in.Pods[0].Resize, b.in.Pods[0].Message = how, "no room"
		b.wait(6 * time.Minute)
		if b.in.State.Phase != Watching || b.touched != 0 {
			t.Errorf("%s: phase %s, touched %d", how, b.in.State.Phase, b.touched)
		}
		if len(b.last.Remarks) != 1 || !strings.Contains(b.last.Remarks[0], string(how)) {
			t.Errorf("%s: remarks %v", how, b.last.Remarks)
		}
	}
}

// TestTemplate: the pod template is changed only where that is asked for, when pods have proved the size, and goes back.
func TestTemplate(t *testing.T) {
	b := newBed(t, 2, of(1000, 1000), of(800, 1000))
	b.wait(time.Hour)
	if b.in.State.Template != nil {
		t.Fatal("changed without being asked for")
	}
	b.in.ChangeTemplate = true
	if plan := b.look(); plan.Template == nil || !b.in.Template.Is(app(of(800, 1000))) {
		t.Fatalf("%+v", plan)
	}
	b.wait(time.Hour)
	b.phase(Resting)
	if b.last.Template != nil || !b.in.State.TemplateSeen {
		t.Error("written again and again")
	}
	saved := b.in.State.Clone()
	b.in.Template = app(of(1000, 1000))
	b.look()
	b.phase(Stopped)
	b.in.State, b.in.Template = saved, app(of(800, 1000))
	b.in.Wanted = Size{}
	if plan := b.look(); plan.Template == nil || !plan.Restore || !b.in.Template.Is(app(of(1000, 1000))) {
		t.Errorf("not given back: %+v", plan)
	}
	b.wait(10 * time.Minute)
	b.phase(Untouched)
	b.all(of(1000, 1000))
}

// TestReplicas: up at once, down a fifth at a time, never below what a disruption budget wants, and not against an owner.
func TestReplicas(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	b := newBed(t, 10, of(1000, 1000), of(1000, 1000))
	b.in.Wanted, b.in.Template = Size{Replicas: n(2)}, Size{Replicas: n(10)}
	b.in.LeastReplicas = 6
	b.wait(2 * time.Minute)
	if *b.in.Template.Replicas != 8 {
		t.Errorf("%d replicas after the first step", *b.in.Template.Replicas)
	}
	b.wait(2 * time.Hour)
	if *b.in.Template.Replicas != 6 {
		t.Errorf("%d replicas, a budget wants 6", *b.in.Template.Replicas)
	}
	b.in.Wanted = Size{Replicas: n(20)}
	if b.look(); *b.in.Template.Replicas != 20 {
		t.Errorf("%d replicas", *b.in.Template.Replicas)
	}
	b.in.Template.Replicas = n(13)
	b.look()
	b.phase(Stopped)
}
