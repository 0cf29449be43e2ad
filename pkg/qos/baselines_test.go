// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// restart returns a new state that loaded the baselines of the previous one from JSON.
func (c *fixture) restart(t *testing.T) {
	t.Helper()

	raw, err := json.Marshal(c.state.Baselines())
	if err != nil {
		t.Fatal(err)
	}

	var list []Baseline
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}

	c.state = State{}
	c.state.RestoreBaselines(list)
}

// TestRestoreBaselines checks that a restarted state detects interference at once and learns nothing unusual.
func TestRestoreBaselines(t *testing.T) {
	c := newFixture()
	c.calm(t)
	c.restart(t)

	c.policy.Rules[0].Preview = true // so that it lasts
	for look := range 100 {
		f := c.tick(0.4, 500, 1000, 6500).Rules[0]
		if i := f.Interference; f.Phase != Firing || i == nil || i.Antagonist.Name != "two" || i.Increase != 5500 || math.Abs(float64(i.Median)-0.01) > 1e-6 {
			t.Fatalf("look %d after a restart: %+v, interference %+v, want a firing rule, antagonist two and an increase of 5500", look, f, i)
		}
	}

	// The agent restarts once more during the interference.
	c.restart(t)

	if f := c.tick(0.4, 500, 1000, 6500).Rules[0]; f.Phase != Firing {
		t.Errorf("after the second restart: %+v, want a firing rule", f)
	}

	// Without baselines the wait becomes the usual one.
	c.state = State{}
	for range 200 {
		c.tick(0.4, 500, 1000, 6500)
	}

	if f := c.tick(0.4, 500, 1000, 6500).Rules[0]; f.Phase == Firing {
		t.Errorf("without baselines: %+v, want the rule not to fire", f)
	}
}

// TestRestoreBaselinesAge checks that the hour until relearning continues across restarts.
func TestRestoreBaselinesAge(t *testing.T) {
	c := newFixture()
	c.calm(t)

	c.policy.Rules[0].Preview = true
	c.every = 5 * time.Second
	for i := range 3600 / 5 {
		if i%100 == 0 {
			c.restart(t)
		}

		if f := c.tick(0.4, 500, 1000, 6500).Rules[0]; f.Phase != Firing {
			t.Fatalf("after %d looks: %+v, want a firing rule", i, f)
		}
	}

	for range 60 {
		c.tick(0.4, 500, 1000, 6500)
	}

	if f := c.tick(0.4, 500, 1000, 6500).Rules[0]; f.Phase == Firing {
		t.Errorf("after more than an hour: %+v, want the wait taken as usual", f)
	}
}

// TestRestoreBaselinesGone checks that the baseline of a removed pod is dropped and that rules may arrive later.
func TestRestoreBaselinesGone(t *testing.T) {
	c := newFixture()
	c.calm(t)
	c.restart(t)
	rules := c.policy.Rules

	c.policy.Rules = nil
	for range 60 {
		c.tick(0.4, 500, 1000, 6500)
	}

	if got := c.state.Baselines(); len(got) != 3 {
		t.Errorf("%d baselines are kept until there are rules, want 3", len(got))
	}

	c.o.Pods[2].UID, c.o.Pods[2].Name = "three", "three"
	c.policy.Rules = rules
	if f := c.tick(0.4, 500, 1000, 6500).Rules[0]; f.Phase != Firing || f.Interference.Antagonist.Name != "three" || f.Interference.Increase != 6500 {
		t.Errorf("Decide = %+v, %+v, want a firing rule because of pod three", f, f.Interference)
	}

	for _, b := range c.state.Baselines() {
		if b.UID == "two" {
			t.Error("Baselines has pod two, want none of a pod that is gone")
		}
	}

	c.restart(t)
	c.policy.Rules = nil
	for range 301 {
		c.tick(0.01, 500, 1000, 1000)
	}

	if got := c.state.Baselines(); len(got) != 0 {
		t.Errorf("%d baselines after five minutes without a rule, want none", len(got))
	}
}

// TestRestoreBaselinesInvalid checks that impossible values and surplus pods are dropped.
func TestRestoreBaselinesInvalid(t *testing.T) {
	c := newFixture()
	bad := Baseline{UID: "web", Waits: map[units.Resource][]float32{}, Uses: map[units.Resource][]float32{}, Above: map[units.Resource]time.Time{units.CPU: at(1 << 30)}}
	for range 2 * ringSize {
		bad.Waits[units.CPU] = append(bad.Waits[units.CPU], -1, 7, float32(math.NaN()), float32(math.Inf(1)), 0.01)
		bad.Uses[units.CPU] = append(bad.Uses[units.CPU], float32(math.Inf(-1)), -5, 500)
		bad.Waits["heat"] = append(bad.Waits["heat"], 1)
	}

	c.state.RestoreBaselines([]Baseline{bad, {UID: "one"}})
	f := c.tick(0.4, 500, 1000, 6500).Rules[0]
	if f.Phase != Firing || math.Abs(float64(f.Interference.Median)-0.01) > 1e-6 || f.Interference.Deviation != 0 {
		t.Errorf("Decide after invalid baselines = %+v, %+v, want a firing rule and a usual wait of 0.01", f, f.Interference)
	}

	var many []Baseline
	for i := range 2 * maxBaselines {
		many = append(many, Baseline{UID: fmt.Sprint(i), Uses: map[units.Resource][]float32{units.CPU: {1}}})
	}

	var s State
	s.RestoreBaselines(many)

	if got := s.Baselines(); len(got) != maxBaselines {
		t.Errorf("%d pods are remembered, want %d", len(got), maxBaselines)
	}
}

// TestRingEvenSamples checks that few samples are returned in order and many are thinned evenly.
func TestRingEvenSamples(t *testing.T) {
	for _, n := range []int{0, 1, 39, 40, 41, 100, ringSize, ringSize + 1, 3 * ringSize} {
		var r ring
		for i := range n {
			r.add(float64(i))
		}

		list := r.evenSamples(40)
		first := float32(max(0, n-ringSize))
		last := float32(n - 1)
		if len(list) != min(n, 40) || n > 0 && (list[0] != first || last-list[len(list)-1] > ringSize/40) {
			t.Errorf("evenSamples(40) of %d samples = %v, want the oldest and nearly the newest", n, list)
		}

		for i := 1; i < len(list); i++ {
			if list[i] <= list[i-1] {
				t.Errorf("evenSamples(40) of %d samples = %v, want ascending values", n, list)
			}
		}
	}
}

// TestInterference_Disks checks the interference of disks, for which nothing is throttled.
func TestInterference_Disks(t *testing.T) {
	c := newFixture()
	c.policy.Rules[0].Metric = InterferenceIO
	look := func(waits units.Ratio, work ...DiskWork) Plan {
		now := c.o.At.Add(c.every)
		for i, w := range work {
			c.o.Pods[i].UsedDisks = Measurement[DiskWork]{w, now}
		}

		c.o.Pods[0].StalledDisks = Measurement[units.Ratio]{waits, now}
		return c.tick(0, 500, 1000, 1000)
	}

	if f := c.tick(0, 500, 1000, 1000).Rules[0]; f.Phase != Unknown || f.Reason != "the disk use of pods is unknown" {
		t.Errorf("Decide without a measurement = %+v, want the metric unknown", f)
	}

	for range 200 {
		if plan := look(0.02, 100, 2000, 50); plan.Rules[0].Phase == Firing {
			t.Fatalf("Decide in calm times = %+v, want the rule not to fire", plan.Rules[0])
		}
	}

	// A pod with a slightly higher use is not the cause.
	if f := look(0.5, 100, 2000, 100).Rules[0]; f.Phase != Calm || !strings.Contains(f.Reason, "no other pod uses more than usual") {
		t.Errorf("Decide without a rise of other pods = %+v, want calm", f)
	}
	if f := look(0.5, 1200, 2000, 500).Rules[0]; f.Phase != Calm || !strings.Contains(f.Reason, "the pod itself uses 1100 disk operations/s more") {
		t.Errorf("Decide with a rise of the pod itself = %+v, want calm", f)
	}

	plan := look(0.5, 100, 2000, 3050)
	want := "n/web (cpuPriority 0) waits 50.0 % of the time for disks, usually 2.0 % ± 0.0 %; n/two uses 3050 disk operations/s, 3000 disk operations/s more than usual"
	if f := plan.Rules[0]; f.Phase != Firing || f.Reason != want || len(plan.Throttles)+len(plan.Evictions) > 0 || !plan.Avoid.Desired {
		t.Errorf("Decide = %+v, want the reason %q and new pods kept away only\nplan %+v", f, want, plan)
	}

	c.policy.Rules[0].Action.Evict = &EvictionSettings{}
	plan = look(0.5, 100, 2000, 3050)
	if len(plan.Throttles) > 0 || len(plan.Evictions) != 1 || plan.Evictions[0].Pod.Name != "two" || plan.Evictions[0].Resource != Disks || plan.Evictions[0].Freed != 3050 {
		t.Errorf("Decide = %+v, want pod two evicted for 3050 disk operations", plan)
	}

	// The pod with the higher use is exempt, and the candidate has its usual use.
	c.o.Pods[2].Allowed = nil
	c.state.terminating = nil
	c.state.evicted = nil

	plan = look(0.5, 100, 2000, 3050)
	if f := plan.Rules[0]; f.Phase != Firing || len(plan.Evictions) > 0 || !strings.HasPrefix(f.Reason, "no pod to evict: n/web") || !strings.HasSuffix(f.Reason, "no permitted pod can be the cause") {
		t.Errorf("Decide = %+v, %+v, evictions %+v, want none because no permitted pod is the cause", f, f.Interference, plan.Evictions)
	}
	if got := (DiskRates{Reads: 60, Writes: 40, ReadBytes: 7 * diskUnit, WriteBytes: 3 * diskUnit}).Work(); got != 110 {
		t.Errorf("Work of 100 operations and 640 KiB = %g, want 110", got)
	}
}
