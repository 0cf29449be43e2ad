// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// TestRing checks that the statistics cover the last samples and ignore outliers.
func TestRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var r ring
	var all []float64
	for i := range 3 * ringSize {
		v := rng.Float64()
		if i%20 == 0 {
			v = 1e6
		}

		r.add(v)
		r.add(math.NaN())
		r.add(math.Inf(1))
		all = append(all, v)
		last := slices.Clone(all[max(0, len(all)-ringSize):])
		slices.Sort(last)

		middle, deviation := r.stats()
		if want := (last[len(last)/2] + last[(len(last)-1)/2]) / 2; math.Abs(middle-want) > 1e-6*math.Max(1, want) {
			t.Fatalf("%d samples: the median is %g, want %g", len(last), middle, want)
		}

		if i > 100 && (middle < 0.2 || middle > 0.8 || deviation < 0.1 || deviation > 0.7) {
			t.Fatalf("stats with outliers = %g, %g, want a median of 0.2 to 0.8 and a deviation of 0.1 to 0.7", middle, deviation)
		}
	}

	if r.n != ringSize {
		t.Errorf("%d samples, want the last %d", r.n, ringSize)
	}

	r.clear()
	if middle, deviation := r.stats(); r.n != 0 || middle != 0 || deviation != 0 {
		t.Errorf("stats of an empty ring = %g, %g, want 0", middle, deviation)
	}
}

// fixture is a node with a latency-sensitive pod and two candidates.
type fixture struct {
	state  State
	policy Policy
	o      Observation
	every  time.Duration
}

func newFixture() *fixture {
	c := &fixture{every: time.Second, o: Observation{At: at(0), Node: Node{CPUs: 8000, Memory: 32 << 30}}}
	action := Action{Name: "a", CoolDown: time.Minute, Throttle: &CPUThrottling{Step: 0.5}}

	c.policy = Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "r", Metric: "pod_interference_cpu_ratio", Threshold: 0.1, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Action: action,
	}}}
	for _, p := range []Pod{
		{UID: "web", Name: "web", Namespace: "n", Class: Guaranteed, Priority: 5, SensitiveReason: "cpuPriority 0", Labels: map[string]string{"PodName": "web"}},
		{UID: "one", Name: "one", Namespace: "n", Class: BestEffort, Allowed: []string{"a"}},
		{UID: "two", Name: "two", Namespace: "n", Class: BestEffort, Allowed: []string{"a"}},
	} {
		p.Containers = []Container{{ID: "c-" + p.UID, Quota: Unlimited}}
		c.o.Pods = append(c.o.Pods, p)
	}

	return c
}

// tick advances the clock with the given wait of the sensitive pod and the given uses.
func (c *fixture) tick(waits float64, used ...units.MilliCPU) Plan {
	c.o.At = c.o.At.Add(c.every)
	var sum units.MilliCPU
	for i := range c.o.Pods {
		p := &c.o.Pods[i]
		p.UsedCPU = Measurement[units.MilliCPU]{used[i], c.o.At}
		sum += used[i]
		p.Containers[0].UsedCPU = p.UsedCPU
	}

	c.o.Pods[0].StalledCPU = Measurement[units.Ratio]{units.Ratio(waits), c.o.At}
	c.o.Node.UsedCPU = Measurement[units.MilliCPU]{min(sum, c.o.Node.CPUs), c.o.At}
	return Decide(&c.policy, &c.o, &c.state)
}

func (c *fixture) calm(t *testing.T) {
	t.Helper()

	for range 200 {
		if plan := c.tick(0.01, 500, 1000, 1000); len(plan.Throttles) > 0 || plan.Rules[0].Phase == Firing {
			t.Fatalf("Decide in calm times = %+v, want no throttles", plan)
		}
	}
}

// TestInterference checks the victim, its wait, the comparison and the cause with their numbers.
func TestInterference(t *testing.T) {
	c := newFixture()
	if f := c.tick(0.9, 500, 1000, 6000).Rules[0]; f.Phase != Unknown || !strings.Contains(f.Reason, "not known yet") {
		t.Errorf("Decide before anything is learned = %+v, want the metric unknown", f)
	}

	c = newFixture()
	c.calm(t)
	plan := c.tick(0.4, 500, 1000, 6500)

	f := plan.Rules[0]
	if i := f.Interference; i == nil || i.Victim.Name != "web" || i.Antagonist.Name != "two" || i.Increase != 5500 || math.Abs(float64(i.Wait)-0.4) > 1e-6 || math.Abs(f.Value-0.39) > 1e-6 {
		t.Fatalf("Decide = %+v, %+v, want web to wait 0.4 because two uses 5500 more", f, f.Interference)
	}

	want := "n/web (cpuPriority 0) waits 40.0 % of the time for cpu, usually 1.0 % ± 0.0 %; n/two uses 6500m cpu, 5500m cpu more than usual"
	if f.Reason != want {
		t.Errorf("Reason = %q, want %q", f.Reason, want)
	}
	if len(plan.Throttles) != 1 || plan.Throttles[0].Pod.Name != "two" || !strings.HasSuffix(plan.Throttles[0].Reason, want) {
		t.Errorf("throttles %+v, want one of pod two with the reason %q", plan.Throttles, want)
	}
	if !plan.Avoid.Desired {
		t.Error("Avoid.Desired = false, want new pods kept away")
	}
}

// TestInterference_OwnCause covers causes that only resemble interference.
func TestInterference_OwnCause(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fixture)
		waits  float64
		used   []units.MilliCPU
		phase  Phase
		why    string
	}{
		"noise below the floor": {nil, 0.05, []units.MilliCPU{500, 1000, 6500}, Calm, ""},
		"its own limit": {func(c *fixture) {
			c.o.Pods[0].Throttled = Measurement[units.Ratio]{1, c.o.At.Add(time.Second)}
		}, 0.9, []units.MilliCPU{500, 1000, 6500}, Calm, ""},
		"CPUs of its own": {func(c *fixture) { c.o.Pods[0].ExclusiveCPUs = true }, 0.9, []units.MilliCPU{500, 1000, 6500}, Calm, "it has exclusive CPUs"},
		"its own load":    {nil, 0.4, []units.MilliCPU{3000, 1000, 1500}, Calm, "the pod itself uses 2500m cpu more than usual"},
		"nobody did more": {nil, 0.4, []units.MilliCPU{500, 1000, 1000}, Calm, "no other pod uses more than usual"},
		"the node's use":  {func(c *fixture) { c.o.Node.CPUs = 0 }, 0.4, []units.MilliCPU{500, 1000, 6500}, Unknown, "the use of cpu by the node is unknown"},
		"not sensitive":   {func(c *fixture) { c.o.Pods[0].SensitiveReason = "" }, 0.9, []units.MilliCPU{500, 1000, 6500}, Unknown, "no waiting time of a latency-sensitive pod"},
		"not a number":    {nil, math.NaN(), []units.MilliCPU{500, 1000, 6500}, Unknown, "no waiting time of a latency-sensitive pod"},
		"nobody may be hurt": {func(c *fixture) {
			c.o.Pods[1].Allowed = nil
			c.o.Pods[2].Allowed = nil
		}, 0.4, []units.MilliCPU{500, 1000, 6500}, Firing, noCandidate},
		"as important": {func(c *fixture) {
			for i := range c.o.Pods {
				c.o.Pods[i].SensitiveReason, c.o.Pods[i].Priority = "class Guaranteed", 5
			}
		}, 0.4, []units.MilliCPU{500, 1000, 6500}, Firing, noCandidate},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFixture()
			c.calm(t)

			if test.change != nil {
				test.change(c)
			}

			plan := c.tick(test.waits, test.used...)
			if f := plan.Rules[0]; f.Phase != test.phase || !strings.Contains(f.Reason, test.why) || len(plan.Throttles) > 0 {
				t.Errorf("Decide = %+v, %+v; throttles %+v, want phase %s, a reason with %q and none", f, f.Interference, plan.Throttles, test.phase, test.why)
			}
		})
	}
}

// TestInterference_OwnMemoryLimit checks that a pod at its own memory limit is not interfered with, however full the node is.
func TestInterference_OwnMemoryLimit(t *testing.T) {
	for name, test := range map[string]struct {
		container Container
		phase     Phase
	}{
		"room":             {Container{LimitMemory: 8 << 30, MemoryHigh: NoMemoryHigh}, Firing},
		"no limit":         {Container{MemoryHigh: NoMemoryHigh}, Firing},
		"limit":            {Container{LimitMemory: 4 << 30, MemoryHigh: NoMemoryHigh}, Calm},
		"memory.high":      {Container{LimitMemory: 8 << 30, MemoryHigh: 4 << 30}, Calm},
		"nothing is known": {Container{}, Firing},
	} {
		c := newFixture()
		c.policy.Rules[0].Metric = InterferenceMemory
		c.o.Node.UsedMemory.Value = 31 << 30

		look := func(waits units.Ratio) Finding {
			now := c.o.At.Add(time.Second)
			p := &c.o.Pods[0]
			test.container.WorkingSet = Measurement[units.Bytes]{4 << 30, now}
			p.Containers = []Container{test.container}
			p.UsedMemory = test.container.WorkingSet
			p.StalledMemory = Measurement[units.Ratio]{waits, now}
			c.o.Node.UsedMemory.At = now

			return c.tick(0, 500, 1000, 1000).Rules[0]
		}

		for range 200 {
			look(0)
		}

		if f := look(0.5); f.Phase != test.phase {
			t.Errorf("%s: %+v, %+v, want phase %s", name, f, f.Interference, test.phase)
		}
	}
}

// TestInterference_SelectedVictims checks a rule that selects some pods.
func TestInterference_SelectedVictims(t *testing.T) {
	c := newFixture()
	c.policy.Rules[0].Matches = func(l map[string]string) bool { return l["PodName"] == "other" }
	for range 200 {
		c.tick(0.01, 500, 1000, 1000)
	}

	if plan := c.tick(0.6, 500, 1000, 6500); plan.Rules[0].Phase != Unknown || len(plan.Throttles) > 0 {
		t.Errorf("Decide of a rule on other pods = %+v, want its metric unknown and no throttles", plan)
	}
}

// TestInterference_NotLearned checks that the usual wait stays fixed during interference, for at most an hour.
func TestInterference_NotLearned(t *testing.T) {
	c := newFixture()
	c.calm(t)

	c.policy.Rules[0].Preview = true // so that no action helps
	c.every = 5 * time.Second
	for i := range 3600 / 5 {
		if f := c.tick(0.4, 500, 1000, 6500).Rules[0]; f.Phase != Firing || math.Abs(float64(f.Interference.Median)-0.01) > 1e-6 || f.Interference.Increase != 5500 {
			t.Fatalf("after %d looks: %+v, %+v, want a firing rule and the median of calm times", i, f, f.Interference)
		}
	}

	for range 60 {
		c.tick(0.4, 500, 1000, 6500)
	}

	if f := c.tick(0.4, 500, 1000, 6500).Rules[0]; f.Phase != Calm {
		t.Errorf("after more than an hour: %+v, want calm", f)
	}
}

// TestRestoreDelay checks that a repeated cause is restored later each time, and that the delay resets.
func TestRestoreDelay(t *testing.T) {
	r := &Rule{TriggerCount: 1, RestoreCount: 1, Action: Action{CoolDown: 5 * time.Minute}}
	var st ruleState
	now := at(0)
	fire := func() time.Duration {
		st.countMeasurement(r, true, now)
		st.countMeasurement(r, false, now)
		return st.restoreDelay(r)
	}

	for i, want := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		if got := fire(); got != want {
			t.Errorf("restoreDelay when firing for time %d = %s, want %s", i, got, want)
		}
		now = now.Add(want + 10*time.Second)
	}

	now = now.Add(2 * time.Hour)
	if got := fire(); got != 5*time.Minute {
		t.Errorf("restoreDelay after two calm hours = %s, want 5m", got)
	}

	r.Action.CoolDown = 3 * time.Hour
	if got := st.restoreDelay(r); got != 3*time.Hour {
		t.Errorf("restoreDelay with a cool-down of three hours = %s, want three hours", got)
	}

	st.refires = maxRefires
	r.Action.CoolDown = math.MaxInt32 * time.Second
	if got := st.restoreDelay(r); got != r.Action.CoolDown {
		t.Errorf("restoreDelay with a cool-down of %s = %s, want the cool-down", r.Action.CoolDown, got)
	}

	r.Action.CoolDown = 0
	if got := fire(); got != 0 {
		t.Errorf("restoreDelay without a cool-down = %s, want 0", got)
	}
}

// TestInterference_SlowDrift checks that a slowly changing load stays usual.
func TestInterference_SlowDrift(t *testing.T) {
	c := newFixture()
	c.calm(t)

	c.every = 5 * time.Second
	for i := range 4 * 3600 / 5 {
		waits := 0.01 + 0.4*(1-math.Cos(2*math.Pi*float64(5*i)/(8*3600)))/2
		if f := c.tick(waits, 500, 1000, 6500).Rules[0]; f.Phase == Firing {
			t.Fatalf("after %d looks of a slow rise: %+v, %+v, want the rule not to fire", i, f, f.Interference)
		}
	}
}

// TestInterference_BoundedHistory checks that the history has a fixed size and goes with the pod and with the rule.
func TestInterference_BoundedHistory(t *testing.T) {
	policy := newFixture().policy
	var s State

	o := &Observation{At: at(0), Node: Node{CPUs: 8000}}
	for i := range 500 {
		o.Pods = append(o.Pods, Pod{UID: fmt.Sprint(i), SensitiveReason: "x"})
	}

	look := func() {
		o.At = o.At.Add(5 * time.Second)
		o.Node.UsedCPU = Measurement[units.MilliCPU]{500, o.At}
		for i := range o.Pods {
			o.Pods[i].UsedCPU = Measurement[units.MilliCPU]{1, o.At}
			o.Pods[i].StalledCPU = Measurement[units.Ratio]{0.1, o.At}
		}

		Decide(&policy, o, &s)
	}

	for range 2 * ringSize {
		look()
	}

	if len(s.detector.pods) != 500 || s.detector.pods["0"].waits[0].n != ringSize {
		t.Errorf("the detector has %d pods, the first with %d samples, want 500 with %d", len(s.detector.pods), s.detector.pods["0"].waits[0].n, ringSize)
	}

	o.Pods = o.Pods[:100]
	look()

	if len(s.detector.pods) != 100 {
		t.Errorf("the detector has %d pods, want the 100 that are left", len(s.detector.pods))
	}
	if allocations := testing.AllocsPerRun(10, look); allocations > 150 {
		t.Errorf("Decide with 100 pods allocates %g times, want at most 150", allocations)
	}

	policy.Rules[0].Metric = "cpu_total_usage"
	look()

	if s.detector != nil {
		t.Errorf("the detector is %+v without a rule on interference, want none", s.detector)
	}
}

// TestInterference_ClockChange checks that a changed clock adds no sample twice and that an unchanged measurement counts once.
func TestInterference_ClockChange(t *testing.T) {
	c := newFixture()
	for range 60 {
		c.tick(0.01, 500, 1000, 1000)
	}

	n := c.state.detector.pods["web"].waits[0].n
	for range 60 {
		c.o.At = c.o.At.Add(time.Second)
		Decide(&c.policy, &c.o, &c.state)
	}

	if got := c.state.detector.pods["web"].waits[0].n; got > n+1 {
		t.Errorf("%d samples became %d without a measurement, want at most one more", n, got)
	}

	c.o.At = c.o.At.Add(-24 * time.Hour)
	for range 60 {
		c.tick(0.01, 500, 1000, 1000)
	}

	if got := c.state.detector.pods["web"].waits[0].n; got < n+11 || got > n+14 {
		t.Errorf("%d samples became %d in a minute after the clock was set back, want 11 to 14 more", n, got)
	}
}

// TestInterference_Random runs random nodes with invalid values and checks that no latency-sensitive pod of the same importance is throttled.
func TestInterference_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	fired := 0
	for range 30 {
		c := newFixture()
		c.policy.Rules = append(c.policy.Rules, c.policy.Rules[0])

		c.policy.Rules[1].Name, c.policy.Rules[1].Metric = "m", "pod_interference_memory_ratio"
		c.o.Pods[1].SensitiveReason = []string{"", "class Guaranteed"}[rng.IntN(2)]
		c.o.Pods[1].Priority = int32(rng.IntN(10))
		for i := range 400 {
			waits := []float64{0.01, 0.02, math.NaN(), -1, 5, math.Inf(1)}[rng.IntN(6)]
			if i%50 > 40 {
				waits = rng.Float64()
			}

			c.o.Pods[1].StalledMemory = Measurement[units.Ratio]{units.Ratio(rng.Float64()), c.o.At}
			plan := c.tick(waits, 500, units.MilliCPU(rng.IntN(5000)), units.MilliCPU(rng.IntN(5000)))
			for _, th := range plan.Throttles {
				if p := c.o.Pods[1]; th.Rule != "" && th.Pod.UID == "one" && p.SensitiveReason != "" && p.Priority >= 5 {
					t.Fatalf("throttle %+v of %+v, want none of a latency-sensitive pod with the same priority", th, p)
				}

				fired++
			}
		}
	}

	if fired < 100 {
		t.Errorf("%d throttles, want 100 or more for the test to show anything", fired)
	}
}
