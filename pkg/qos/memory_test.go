// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
)

// memoryNode is a node of 16 GiB with a rule on 12 GiB, and pods that it may throttle.
type memoryNode struct {
	policy Policy
	o      Observation
	s      State
}

// holder is a pod with one container.
func holder(name string, held, working, request series.Bytes) Pod {
	return Pod{
		UID: name, Namespace: "batch", Name: name, Class: BestEffort, Allowed: []string{"calm-down"},
		Containers: []Container{{
			ID: name, Name: "main", RequestMemory: request, High: NoHigh,
			HeldMemory: Measured[series.Bytes]{Value: held}, WorkingSet: Measured[series.Bytes]{Value: working},
		}},
		UsedMemory: Measured[series.Bytes]{Value: working},
	}
}

func newMemoryNode(pods ...Pod) *memoryNode {
	return &memoryNode{
		policy: Policy{Limits: DefaultLimits(), Rules: []Rule{{
			Name: "mixed/memory", Metric: "memory_total_usage", Above: 12 * gibi, Trigger: 1, Restore: 2, MaxAge: time.Minute,
			Action: Action{Name: "calm-down", CoolDown: time.Minute, ThrottleMemory: &MemoryThrottling{}, Evict: &Evicting{}},
		}}},
		o: Observation{At: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), Node: Node{CPUs: 4000, Memory: 16 * gibi}, Pods: pods},
	}
}

// decide lets a second pass, and decides with so much memory in use.
func (n *memoryNode) decide(used float64) Plan {
	n.o.At = n.o.At.Add(time.Second)
	n.o.Samples = map[string][]Sample{"memory_total_usage": {{Value: used, At: n.o.At}}}
	for i := range n.o.Pods {
		p := &n.o.Pods[i]
		p.UsedMemory.At = n.o.At
		for k := range p.Containers {
			p.Containers[k].HeldMemory.At, p.Containers[k].WorkingSet.At = n.o.At, n.o.At
		}
	}
	return Decide(&n.policy, &n.o, &n.s)
}

// tick is decide, and does what is planned.
func (n *memoryNode) tick(used float64) Plan {
	plan := n.decide(used)
	for _, t := range plan.MemoryThrottles {
		n.s.MemoryThrottled(t)
		for i := range n.o.Pods {
			if c := &n.o.Pods[i].Containers[0]; c.ID == t.ContainerID {
				c.High = t.To
				c.HeldMemory.Value = min(c.HeldMemory.Value, series.Bytes(t.To))
			}
		}
	}
	return plan
}

// TestThrottleMemory: half of what was not used lately goes at each measurement, then growth; then somebody is evicted. All is given back
// in steps when the node is calm.
func TestThrottleMemory(t *testing.T) {
	n := newMemoryNode(holder("reader", 4*gibi, 1*gibi, 0))
	c := &n.o.Pods[0].Containers[0]
	floor := High(gibi * 21 / 20)
	steps := 0
	for ; steps < 20; steps++ {
		before := c.High
		plan := n.tick(13 * gibi)
		if len(plan.MemoryThrottles) == 0 {
			break
		}
		if c.High >= before || c.High < floor {
			t.Fatalf("step %d: from %s to %s", steps, before, c.High)
		}
		if th := plan.MemoryThrottles[0]; th.Frees > 0 && len(plan.Evictions) > 0 {
			t.Errorf("somebody is evicted while memory can be had back: %+v", plan)
		}
	}
	if !near(c.High, floor) || steps < 3 || steps > 8 {
		t.Errorf("after %d steps the limit is %s, want %s", steps, c.High, floor)
	}
	if plan := n.tick(13 * gibi); len(plan.Evictions) != 1 {
		t.Errorf("nobody is evicted when nothing more can be had back: %+v", plan.Rules)
	}
	// Calm for long enough: back in steps, to no limit.
	n.tick(11.9 * gibi)
	if plan := n.tick(11.9 * gibi); len(plan.MemoryThrottles) > 0 {
		t.Errorf("given back without room below the threshold: %+v", plan.MemoryThrottles)
	}
	last := c.High
	for range 40 {
		for _, th := range n.tick(8 * gibi).MemoryThrottles {
			if th.To <= last || th.Frees >= 0 {
				t.Errorf("%+v", th)
			}
			last = th.To
		}
	}
	if c.High != NoHigh || len(n.s.highs) > 0 {
		t.Errorf("the limit is %s, want none", c.High)
	}
}

// TestEvictWaitsForFiles: not for files that nobody drops, nor for ever for those that nobody can; each time that the rule fires anew.
func TestEvictWaitsForFiles(t *testing.T) {
	seconds := func(n *memoryNode) int {
		for second := range 100 {
			if len(n.decide(13*gibi).Evictions) > 0 {
				return second
			}
		}
		return 100
	}
	n := newMemoryNode(holder("reader", 4*gibi, gibi, 0))
	for range 2 {
		// As where writes fail: what is planned is never seen to be done.
		if got, want := seconds(n), int(DefaultLimits().Drop.Seconds()); got != want {
			t.Errorf("waits for %d s, want %d", got, want)
		}
		if more := len(n.decide(13 * gibi).MemoryThrottles); more == 0 {
			t.Error("files are not dropped any more")
		}
		for range 3 {
			n.decide(8 * gibi)
		}
	}
	n = newMemoryNode(holder("reader", 4*gibi, gibi, 0))
	n.policy.Untaken = map[Resource]bool{Memory: true}
	if got := seconds(n); got != 0 {
		t.Errorf("waits for %d s for what nobody does", got)
	}
	n = newMemoryNode(holder("reader", 4*gibi, gibi, 0))
	n.policy.Untaken = map[Resource]bool{CPU: true}
	n.policy.Rules[0].Action.Throttle = &Throttling{Step: 0.1}
	c := &n.o.Pods[0].Containers[0]
	c.Quota, c.UsedCPU = Unlimited, Measured[series.MilliCPU]{Value: 2000, At: n.o.At}
	if got := seconds(n); got != int(DefaultLimits().Drop.Seconds()) {
		t.Errorf("waits for %d s where cpu is not taken", got)
	}
}

// near tells whether a limit is at a floor, or so little above it that no step is worth it.
func near(h, floor High) bool { return h == floor || h > floor && h-floor < floor/30 }

func TestThrottleMemoryFloors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*memoryNode)
		want   High // after many measurements
	}{
		"request":             {func(n *memoryNode) { n.o.Pods[0].Containers[0].RequestMemory = 3 * gibi }, 3 * gibi},
		"working set":         {func(*memoryNode) {}, gibi * 21 / 20},
		"little":              {func(n *memoryNode) { n.o.Pods[0].Containers[0].WorkingSet.Value = 1 }, leastHigh},
		"lower limit already": {func(n *memoryNode) { n.o.Pods[0].Containers[0].High = gibi }, gibi},
		"cgroup v1":           {func(n *memoryNode) { n.o.Pods[0].Containers[0].High = 0 }, 0},
		"not allowed":         {func(n *memoryNode) { n.o.Pods[0].Allowed = nil }, NoHigh},
		"ending":              {func(n *memoryNode) { n.o.Pods[0].Terminating = true }, NoHigh},
		"cpu rule":            {func(n *memoryNode) { n.policy.Rules[0].Metric = "cpu_total_usage" }, NoHigh},
		"in preview":          {func(n *memoryNode) { n.policy.Rules[0].Preview = true }, NoHigh},
		"no memory throttle":  {func(n *memoryNode) { n.policy.Rules[0].Action.ThrottleMemory = nil }, NoHigh},
		"stalls already": {func(n *memoryNode) {
			n.o.Pods[0].StalledMemory = Measured[series.Ratio]{Value: 0.5, At: n.o.At.Add(10 * time.Second)}
		}, NoHigh},
	} {
		t.Run(name, func(t *testing.T) {
			n := newMemoryNode(holder("reader", 4*gibi, 1*gibi, 0))
			test.change(n)
			for range 20 {
				n.tick(13 * gibi)
			}
			if got := n.o.Pods[0].Containers[0].High; !near(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestThrottleMemoryPreview: what would be done is told, and nothing else happens.
func TestThrottleMemoryPreview(t *testing.T) {
	n := newMemoryNode(holder("reader", 4*gibi, 1*gibi, 0))
	n.policy.Rules[0].Preview = true
	plan := n.tick(13 * gibi)
	if len(plan.MemoryThrottles) > 0 || len(plan.Previews) != 1 || len(plan.Previews[0].MemoryThrottles) != 1 {
		t.Errorf("%+v", plan)
	}
}

// TestThrottleMemoryNoMoreThanNeeded: victims in order until the gap is closed.
func TestThrottleMemoryNoMoreThanNeeded(t *testing.T) {
	important := holder("important", 6*gibi, gibi, 0)
	important.Priority = 1000
	n := newMemoryNode(important, holder("reader", 4*gibi, gibi, 0))
	plan := n.tick(12.5 * gibi)
	if len(plan.MemoryThrottles) != 1 || plan.MemoryThrottles[0].Pod.Name != "reader" {
		t.Errorf("%+v", plan.MemoryThrottles)
	}
	if th := plan.MemoryThrottles[0]; th.Reclaim != 0 || !strings.Contains(th.Why, "4096 MiB") || th.From.String() != "no limit" {
		t.Errorf("%+v", th)
	}
	n = newMemoryNode(holder("reader", 4*gibi, gibi, 0))
	n.policy.Rules[0].Action.ThrottleMemory.Reclaim = true
	if th := n.tick(13 * gibi).MemoryThrottles; len(th) != 1 || th[0].Reclaim <= th[0].Frees {
		t.Errorf("forceGC asks for %+v", th)
	}
}

// TestThrottleMemoryOthers: a limit that somebody else has set is not ours to give back.
func TestThrottleMemoryOthers(t *testing.T) {
	n := newMemoryNode(holder("reader", 4*gibi, gibi, 0))
	n.tick(13 * gibi)
	n.o.Pods[0].Containers[0].High = 2 * gibi
	n.tick(8 * gibi)
	if plan := n.tick(8 * gibi); len(plan.MemoryThrottles) > 0 || len(n.s.highs) > 0 {
		t.Errorf("%+v", plan.MemoryThrottles)
	}
	// The rule is deleted: all at once.
	n = newMemoryNode(holder("reader", 4*gibi, gibi, 0))
	n.tick(13 * gibi)
	n.policy.Rules = nil
	if plan := n.tick(13 * gibi); len(plan.MemoryThrottles) != 1 || plan.MemoryThrottles[0].To != NoHigh {
		t.Errorf("%+v", plan.MemoryThrottles)
	}
	// A container that is gone is forgotten.
	n = newMemoryNode(holder("reader", 4*gibi, gibi, 0))
	n.tick(13 * gibi)
	n.o.Pods = nil
	for range forgetAfter + 1 {
		n.tick(13 * gibi)
	}
	if len(n.s.highs) > 0 {
		t.Errorf("%+v", n.s.highs)
	}
}

// TestThrottleMemoryHolds: whatever is measured, a limit that is written is at the floor or above it, below the one before on the way
// down, and never above the original.
func TestThrottleMemoryHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var pods []Pod
		for i := range 1 + rng.IntN(4) {
			p := holder(string(rune('a'+i)), 0, 0, series.Bytes(rng.Int64N(2*gibi)))
			if rng.IntN(3) == 0 {
				p.Containers[0].High = High(1 + rng.Int64N(4*gibi))
			}
			pods = append(pods, p)
		}
		n := newMemoryNode(pods...)
		originals := map[string]High{}
		for i := range n.o.Pods {
			c := &n.o.Pods[i].Containers[0]
			originals[c.ID] = c.High
		}
		for range 50 {
			floors := map[string]High{}
			for i := range n.o.Pods {
				c := &n.o.Pods[i].Containers[0]
				c.HeldMemory.Value = series.Bytes(rng.Int64N(4 * gibi))
				c.WorkingSet.Value = series.Bytes(rng.Int64N(int64(c.HeldMemory.Value) + 1))
				floors[c.ID] = max(High(c.RequestMemory), High(c.WorkingSet.Value))
			}
			for _, th := range n.tick(10*gibi + float64(rng.IntN(4*gibi))).MemoryThrottles {
				if th.To > originals[th.ContainerID] || th.Original != originals[th.ContainerID] || th.To == th.From ||
					th.Frees >= 0 && (th.To < floors[th.ContainerID] || th.To > th.From) || th.Frees < 0 && th.To < th.From {
					t.Fatalf("%+v, floor %s, original %s", th, floors[th.ContainerID], originals[th.ContainerID])
				}
			}
		}
	}
}
