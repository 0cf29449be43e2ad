// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
)

// memoryFixture is a node of 16 GiB with a rule at 12 GiB and pods it may throttle.
type memoryFixture struct {
	policy Policy
	o      Observation
	s      State
}

// memoryPod returns a pod with one container.
func memoryPod(name string, held, working, request units.Bytes) Pod {
	return Pod{
		UID: name, Namespace: "batch", Name: name, Class: BestEffort, Allowed: []string{"calm-down"},
		Containers: []Container{{
			ID: name, Name: "main", RequestMemory: request, MemoryHigh: NoMemoryHigh,
			MemoryUsage: Measurement[units.Bytes]{Value: held}, WorkingSet: Measurement[units.Bytes]{Value: working},
		}},
		UsedMemory: Measurement[units.Bytes]{Value: working},
	}
}

func newMemoryFixture(pods ...Pod) *memoryFixture {
	return &memoryFixture{
		policy: Policy{Limits: DefaultLimits(), Rules: []Rule{{
			Name: "mixed/memory", Metric: "memory_total_usage", Threshold: 12 * gibi, TriggerCount: 1, RestoreCount: 2, MaxAge: time.Minute,
			Action: Action{Name: "calm-down", CoolDown: time.Minute, ThrottleMemory: &MemoryThrottleSettings{}, Evict: &EvictionSettings{}},
		}}},
		o: Observation{At: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), Node: Node{CPUs: 4000, Memory: 16 * gibi}, Pods: pods},
	}
}

// decide advances the clock by a second and decides with the given memory in use.
func (n *memoryFixture) decide(used float64) Plan {
	n.o.At = n.o.At.Add(time.Second)
	n.o.Samples = map[string][]Sample{"memory_total_usage": {{Value: used, At: n.o.At}}}
	for i := range n.o.Pods {
		p := &n.o.Pods[i]
		p.UsedMemory.At = n.o.At
		for k := range p.Containers {
			p.Containers[k].MemoryUsage.At, p.Containers[k].WorkingSet.At = n.o.At, n.o.At
		}
	}

	return Decide(&n.policy, &n.o, &n.s)
}

// tick decides and executes the plan.
func (n *memoryFixture) tick(used float64) Plan {
	plan := n.decide(used)
	for _, t := range plan.MemoryThrottles {
		n.s.RecordMemoryThrottle(t)
		for i := range n.o.Pods {
			if c := &n.o.Pods[i].Containers[0]; c.ID == t.ContainerID {
				c.MemoryHigh = t.To
				c.MemoryUsage.Value = min(c.MemoryUsage.Value, units.Bytes(t.To))
			}
		}
	}

	return plan
}

// TestThrottleMemory checks that half of the unused page cache is reclaimed per measurement, then growth is limited, then a pod is
// evicted, and that limits are restored in steps when the node is calm.
func TestThrottleMemory(t *testing.T) {
	n := newMemoryFixture(memoryPod("reader", 4*gibi, 1*gibi, 0))
	c := &n.o.Pods[0].Containers[0]
	floor := MemoryHigh(gibi * 21 / 20)

	steps := 0
	for ; steps < 20; steps++ {
		before := c.MemoryHigh
		plan := n.tick(13 * gibi)
		if len(plan.MemoryThrottles) == 0 {
			break
		}

		if c.MemoryHigh >= before || c.MemoryHigh < floor {
			t.Fatalf("step %d: from %s to %s, want lower but not below %s", steps, before, c.MemoryHigh, floor)
		}

		if th := plan.MemoryThrottles[0]; th.Freed > 0 && len(plan.Evictions) > 0 {
			t.Errorf("Decide = %+v, want no eviction while page cache is reclaimed", plan)
		}
	}

	if !near(c.MemoryHigh, floor) || steps < 3 || steps > 8 {
		t.Errorf("after %d steps the limit is %s, want %s after 3 to 8", steps, c.MemoryHigh, floor)
	}
	if plan := n.tick(13 * gibi); len(plan.Evictions) != 1 {
		t.Errorf("Decide = %+v, want one eviction when nothing is left to reclaim", plan.Rules)
	}

	// After enough calm measurements limits are restored in steps, up to no limit.
	n.tick(11.9 * gibi)

	if plan := n.tick(11.9 * gibi); len(plan.MemoryThrottles) > 0 {
		t.Errorf("restored %+v, want none without headroom below the threshold", plan.MemoryThrottles)
	}

	last := c.MemoryHigh
	for range 40 {
		for _, th := range n.tick(8 * gibi).MemoryThrottles {
			if th.To <= last || th.Freed >= 0 {
				t.Errorf("restore step %+v, want a limit above %s and nothing freed", th, last)
			}
			last = th.To
		}
	}

	if c.MemoryHigh != NoMemoryHigh || len(n.s.highs) > 0 {
		t.Errorf("the limit is %s, want none", c.MemoryHigh)
	}
}

// TestDeferEvictions checks that evictions wait for page cache for a limited time, each time the rule fires anew, and not at all if
// memory is not throttled.
func TestDeferEvictions(t *testing.T) {
	seconds := func(n *memoryFixture) int {
		for second := range 100 {
			if len(n.decide(13*gibi).Evictions) > 0 {
				return second
			}
		}

		return 100
	}

	n := newMemoryFixture(memoryPod("reader", 4*gibi, gibi, 0))
	for range 2 {
		// As if writes fail: the planned limits are never in force.
		if got, want := seconds(n), int(DefaultLimits().ReclaimWait.Seconds()); got != want {
			t.Errorf("evictions wait %d s, want %d", got, want)
		}
		if more := len(n.decide(13 * gibi).MemoryThrottles); more == 0 {
			t.Error("no memory throttle is planned after the wait, want them to continue")
		}

		for range 3 {
			n.decide(8 * gibi)
		}
	}

	n = newMemoryFixture(memoryPod("reader", 4*gibi, gibi, 0))
	n.policy.Unthrottled = map[units.Resource]bool{units.Memory: true}
	if got := seconds(n); got != 0 {
		t.Errorf("evictions wait %d s where memory is not throttled, want 0", got)
	}

	n = newMemoryFixture(memoryPod("reader", 4*gibi, gibi, 0))
	n.policy.Unthrottled = map[units.Resource]bool{units.CPU: true}
	n.policy.Rules[0].Action.Throttle = &CPUThrottling{Step: 0.1}
	c := &n.o.Pods[0].Containers[0]
	c.Quota = Unlimited
	c.UsedCPU = Measurement[units.MilliCPU]{Value: 2000, At: n.o.At}

	if got := seconds(n); got != int(DefaultLimits().ReclaimWait.Seconds()) {
		t.Errorf("evictions wait %d s where only CPU is not throttled, want as long as page cache is reclaimed", got)
	}
}

// near reports whether a limit is at a floor or less than a step above it.
func near(h, floor MemoryHigh) bool { return h == floor || h > floor && h-floor < floor/30 }

func TestThrottleMemoryFloors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*memoryFixture)
		want   MemoryHigh // after many measurements
	}{
		"request":     {func(n *memoryFixture) { n.o.Pods[0].Containers[0].RequestMemory = 3 * gibi }, 3 * gibi},
		"working set": {func(*memoryFixture) {}, gibi * 21 / 20},
		"little": {func(n *memoryFixture) {
			n.o.Pods[0].UsedMemory.Value = 1
			n.o.Pods[0].Containers[0].WorkingSet.Value = 1
		}, minMemoryHigh},
		"lower limit already": {func(n *memoryFixture) { n.o.Pods[0].Containers[0].MemoryHigh = gibi }, gibi},
		"cgroup v1":           {func(n *memoryFixture) { n.o.Pods[0].Containers[0].MemoryHigh = 0 }, 0},
		"not allowed":         {func(n *memoryFixture) { n.o.Pods[0].Allowed = nil }, NoMemoryHigh},
		"ending":              {func(n *memoryFixture) { n.o.Pods[0].Terminating = true }, NoMemoryHigh},
		"cpu rule":            {func(n *memoryFixture) { n.policy.Rules[0].Metric = "cpu_total_usage" }, NoMemoryHigh},
		"in preview":          {func(n *memoryFixture) { n.policy.Rules[0].Preview = true }, NoMemoryHigh},
		"no memory throttle":  {func(n *memoryFixture) { n.policy.Rules[0].Action.ThrottleMemory = nil }, NoMemoryHigh},
		"stalls already": {func(n *memoryFixture) {
			n.o.Pods[0].StalledMemory = Measurement[units.Ratio]{Value: 0.5, At: n.o.At.Add(10 * time.Second)}
		}, NoMemoryHigh},
	} {
		t.Run(name, func(t *testing.T) {
			n := newMemoryFixture(memoryPod("reader", 4*gibi, 1*gibi, 0))
			test.change(n)

			for range 20 {
				n.tick(13 * gibi)
			}

			if got := n.o.Pods[0].Containers[0].MemoryHigh; !near(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestThrottleMemoryPreview checks that a preview only reports.
func TestThrottleMemoryPreview(t *testing.T) {
	n := newMemoryFixture(memoryPod("reader", 4*gibi, 1*gibi, 0))
	n.policy.Rules[0].Preview = true

	plan := n.tick(13 * gibi)
	if len(plan.MemoryThrottles) > 0 || len(plan.Previews) != 1 || len(plan.Previews[0].MemoryThrottles) != 1 {
		t.Errorf("Decide of a preview = %+v, want the throttle in Previews only", plan)
	}
}

// TestThrottleMemoryNoMoreThanNeeded checks that victims are throttled in order until the gap is closed.
func TestThrottleMemoryNoMoreThanNeeded(t *testing.T) {
	important := memoryPod("important", 6*gibi, gibi, 0)
	important.Priority = 1000
	n := newMemoryFixture(important, memoryPod("reader", 4*gibi, gibi, 0))

	plan := n.tick(12.5 * gibi)
	if len(plan.MemoryThrottles) != 1 || plan.MemoryThrottles[0].Pod.Name != "reader" {
		t.Errorf("memory throttles %+v, want one of reader", plan.MemoryThrottles)
	}
	if th := plan.MemoryThrottles[0]; th.Reclaim != 0 || !strings.Contains(th.Reason, "4096 MiB") || th.From.String() != "no limit" {
		t.Errorf("memory throttle %+v, want no reclaim at once and the numbers in the reason", th)
	}

	n = newMemoryFixture(memoryPod("reader", 4*gibi, gibi, 0))
	n.policy.Rules[0].Action.ThrottleMemory.Reclaim = true
	if th := n.tick(13 * gibi).MemoryThrottles; len(th) != 1 || th[0].Reclaim <= th[0].Freed {
		t.Errorf("memory throttles with Reclaim = %+v, want one that reclaims more than a step frees", th)
	}
}

// TestThrottleMemoryOthers checks that a limit written by another process is not restored.
func TestThrottleMemoryOthers(t *testing.T) {
	n := newMemoryFixture(memoryPod("reader", 4*gibi, gibi, 0))
	n.tick(13 * gibi)
	n.o.Pods[0].Containers[0].MemoryHigh = 2 * gibi
	n.tick(8 * gibi)

	if plan := n.tick(8 * gibi); len(plan.MemoryThrottles) > 0 || len(n.s.highs) > 0 {
		t.Errorf("memory throttles %+v, want none after another process changed the limit", plan.MemoryThrottles)
	}

	// The rule is deleted: the limit is restored at once.
	n = newMemoryFixture(memoryPod("reader", 4*gibi, gibi, 0))
	n.tick(13 * gibi)

	n.policy.Rules = nil
	if plan := n.tick(13 * gibi); len(plan.MemoryThrottles) != 1 || plan.MemoryThrottles[0].To != NoMemoryHigh {
		t.Errorf("memory throttles %+v, want the original limit restored", plan.MemoryThrottles)
	}

	// The record of a removed container is dropped.
	n = newMemoryFixture(memoryPod("reader", 4*gibi, gibi, 0))
	n.tick(13 * gibi)

	n.o.Pods = nil
	for range forgetAfter + 1 {
		n.tick(13 * gibi)
	}

	if len(n.s.highs) > 0 {
		t.Errorf("records %+v, want none of containers that are gone", n.s.highs)
	}
}

// TestThrottleMemoryBounds checks that a written limit is never below the floor, falls step by step and never exceeds the original.
func TestThrottleMemoryBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var pods []Pod
		for i := range 1 + rng.IntN(4) {
			p := memoryPod(string(rune('a'+i)), 0, 0, units.Bytes(rng.Int64N(2*gibi)))
			if rng.IntN(3) == 0 {
				p.Containers[0].MemoryHigh = MemoryHigh(1 + rng.Int64N(4*gibi))
			}

			pods = append(pods, p)
		}

		n := newMemoryFixture(pods...)
		originals := map[string]MemoryHigh{}
		for i := range n.o.Pods {
			c := &n.o.Pods[i].Containers[0]
			originals[c.ID] = c.MemoryHigh
		}

		for range 50 {
			floors := map[string]MemoryHigh{}
			for i := range n.o.Pods {
				c := &n.o.Pods[i].Containers[0]
				c.MemoryUsage.Value = units.Bytes(rng.Int64N(4 * gibi))
				c.WorkingSet.Value = units.Bytes(rng.Int64N(int64(c.MemoryUsage.Value) + 1))
				floors[c.ID] = max(MemoryHigh(c.RequestMemory), MemoryHigh(c.WorkingSet.Value))
			}

			for _, th := range n.tick(10*gibi + float64(rng.IntN(4*gibi))).MemoryThrottles {
				if th.To > originals[th.ContainerID] || th.Original != originals[th.ContainerID] || th.To == th.From ||
					th.Freed >= 0 && (th.To < floors[th.ContainerID] || th.To > th.From) || th.Freed < 0 && th.To < th.From {
					t.Fatalf("memory throttle %+v, want a limit between the floor %s and the original %s", th, floors[th.ContainerID], originals[th.ContainerID])
				}
			}
		}
	}
}

// TestThrottleMemorySandboxed checks that the memory of a pod whose processes are outside of its containers' cgroups is not throttled, that
// the rule says why, and that the pod can be evicted at once.
func TestThrottleMemorySandboxed(t *testing.T) {
	for name, test := range map[string]struct {
		// Of the pod, and of its container.
		podMemory, held, working units.Bytes
		podCPU, cpu              units.MilliCPU
		throttled                bool
	}{
		"in a virtual machine":               {podMemory: 4 * gibi},
		"a rest in the container":            {podMemory: 4 * gibi, held: 100 * mebi, working: 80 * mebi},
		"a busy virtual machine of the host": {podMemory: 32 * mebi, held: 30 * mebi, working: 20 * mebi, podCPU: 2000, cpu: 10},
		"in the container's group":           {podMemory: 1 * gibi, held: 4 * gibi, working: 1 * gibi, throttled: true},
		"a small pod":                        {podMemory: 40 * mebi, held: 2 * mebi, working: 1 * mebi, throttled: true},
	} {
		pod := memoryPod("web", test.held, test.working, 0)
		pod.UsedMemory.Value = test.podMemory

		n := newMemoryFixture(pod)
		at := n.o.At.Add(time.Second)
		n.o.Pods[0].UsedCPU = Measurement[units.MilliCPU]{test.podCPU, at}
		n.o.Pods[0].Containers[0].UsedCPU = Measurement[units.MilliCPU]{test.cpu, at}

		plan := n.decide(13 * gibi)
		if got := len(plan.MemoryThrottles) > 0; got != test.throttled {
			t.Errorf("%s: Decide throttles %+v, want throttled %t", name, plan.MemoryThrottles, test.throttled)
		}

		if said := strings.Contains(plan.Rules[0].Reason, "Kata or gVisor"); said == test.throttled {
			t.Errorf("%s: Decide gives the reason %q, want the runtime in it: %t", name, plan.Rules[0].Reason, !test.throttled)
		}

		if !test.throttled && len(plan.Evictions) != 1 {
			t.Errorf("%s: Decide evicts %+v, want the pod", name, plan.Evictions)
		}
	}
}
