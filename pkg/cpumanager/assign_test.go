// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"fmt"
	"strings"
	"testing"

	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// newMachine returns zones with cores of two threads each, numbered as in Linux, with a gap between zones: core c of zone z has the CPUs
// 64z+c and 64z+c+cores.
func newMachine(t testing.TB, zones, cores int, reserved ...int) Machine {
	t.Helper()

	m := Machine{Reserved: numa.NewCPUSet(reserved...), Memory: map[string]units.Bytes{}}
	var threads []numa.Thread
	for z := range zones {
		name := fmt.Sprint("node", z)
		m.Memory[name] = 8 << 30

		for c := range cores {
			threads = append(threads, numa.Thread{CPU: 64*z + c, Core: 100*z + c, Zone: name}, numa.Thread{CPU: 64*z + c + cores, Core: 100*z + c, Zone: name})
		}
	}

	var err error
	m.Layout, err = numa.NewLayout(threads)
	if err != nil {
		t.Fatal(err)
	}

	return m
}

// newPod returns a pod with the containers a, b, c that request so many CPUs.
func newPod(uid string, policy numa.Policy, zones map[string]int, wants ...int) Pod {
	p := Pod{UID: uid, Policy: policy, Zones: zones}
	for i, n := range wants {
		p.Containers = append(p.Containers, Container{Name: string(rune('a' + i)), CPUs: n, Memory: 1 << 30})
	}

	return p
}

// formatPlan formats a plan in one line.
func formatPlan(p *Plan) string {
	var out []string
	for _, h := range p.Assignments {
		out = append(out, fmt.Sprintf("%s=%s", h.ID, p.CPUs(h.ID)))
	}

	for _, r := range p.Refused {
		out = append(out, fmt.Sprintf("%s refused, keeps %t", r.ID, r.KeepsCPUs))
	}

	return strings.Join(append(out, "shared="+p.Shared.String()), " ")
}

func TestAssign(t *testing.T) {
	one := func(n int) map[string]int { return map[string]int{"node0": n} }
	for name, test := range map[string]struct {
		reserved []int
		pods     []Pod
		want     string
	}{
		// Cores are {0,4} {1,5} {2,6} {3,7} of node0 and {64,68} to {67,71} of node1.
		"each container has its own":      {nil, []Pod{newPod("p", numa.PolicyExclusive, one(4), 2, 2)}, "p/a=0,4 p/b=1,5 shared=2-3,6-7,64-71"},
		"reserved ones are not given":     {[]int{0}, []Pod{newPod("p", numa.PolicyExclusive, one(2), 2)}, "p/a=1,5 shared=0,2-4,6-7,64-71"},
		"immovable ones stay shared":      {nil, []Pod{newPod("p", numa.PolicyImmovable, one(2), 2)}, "p/a=0,4 shared=0-7,64-71"},
		"numa shares its zones":           {[]int{64}, []Pod{newPod("p", numa.PolicyNUMA, map[string]int{"node1": 2}, 2)}, "p/a=65-71 shared=0-7,64-71"},
		"none shares all":                 {nil, []Pod{newPod("p", numa.PolicyNone, one(2), 2)}, "shared=0-7,64-71"},
		"over two zones":                  {nil, []Pod{newPod("p", numa.PolicyExclusive, map[string]int{"node0": 2, "node1": 4}, 6)}, "p/a=0,4,64-65,68-69 shared=1-3,5-7,66-67,70-71"},
		"the larger one has a zone":       {nil, []Pod{newPod("p", numa.PolicyExclusive, map[string]int{"node0": 2, "node1": 4}, 2, 4)}, "p/a=0,4 p/b=64-65,68-69 shared=1-3,5-7,66-67,70-71"},
		"more than the scheduler gave":    {nil, []Pod{newPod("p", numa.PolicyExclusive, one(2), 3)}, "p/a refused, keeps false shared=0-7,64-71"},
		"a zone that is not there":        {nil, []Pod{newPod("p", numa.PolicyExclusive, map[string]int{"node7": 2}, 2)}, "p/a refused, keeps false shared=0-7,64-71"},
		"a negative zone":                 {nil, []Pod{newPod("p", numa.PolicyExclusive, map[string]int{"node0": -2, "node1": 4}, 2)}, "p/a refused, keeps false shared=0-7,64-71"},
		"an unknown policy":               {nil, []Pod{newPod("p", "sometimes", one(2), 2)}, "p/a refused, keeps false shared=0-7,64-71"},
		"a second pod finds it taken":     {nil, []Pod{newPod("p", numa.PolicyExclusive, one(6), 6), newPod("q", numa.PolicyExclusive, one(4), 4)}, "p/a=0-2,4-6 q/a refused, keeps false shared=3,7,64-71"},
		"numa keeps what it was promised": {nil, []Pod{newPod("p", numa.PolicyNUMA, one(6), 6), newPod("q", numa.PolicyExclusive, one(4), 4)}, "p/a=0-7 q/a refused, keeps false shared=0-7,64-71"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Assign(newMachine(t, 2, 4, test.reserved...), nil, test.pods)
			if got := formatPlan(&plan); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestAssign_SharedNeverEmpty checks that the last shared CPU is never assigned: by one request, by several, or from a file.
func TestAssign_SharedNeverEmpty(t *testing.T) {
	m := newMachine(t, 1, 2) // CPUs 0 to 3, none reserved
	all := newPod("p", numa.PolicyExclusive, map[string]int{"node0": 4}, 4)
	if plan := Assign(m, nil, []Pod{all}); formatPlan(&plan) != "p/a refused, keeps false shared=0-3" || !strings.Contains(plan.Refused[0].Reason, "none to share") {
		t.Errorf("Assign with one container on all CPUs = %s, %+v, want it refused because none would be left to share", formatPlan(&plan), plan.Refused)
	}

	parts := newPod("p", numa.PolicyExclusive, map[string]int{"node0": 4}, 2, 2)
	if plan := Assign(m, nil, []Pod{parts}); formatPlan(&plan) != "p/a=0,2 p/b refused, keeps false shared=1,3" {
		t.Errorf("Assign with two containers on all CPUs = %s, want the second one refused", formatPlan(&plan))
	}

	before := []Assignment{{ID: ID{"p", "a"}, Policy: numa.PolicyExclusive, CPUs: numa.NewCPUSet(0, 1, 2, 3)}}
	if plan := Assign(m, before, []Pod{all}); formatPlan(&plan) != "p/a refused, keeps false shared=0-3" {
		t.Errorf("Assign after a container had all CPUs = %s, want it refused", formatPlan(&plan))
	}
}

// TestAssign_KeptCPUs checks which CPUs a container keeps after changes.
func TestAssign_KeptCPUs(t *testing.T) {
	exclusive := func(cpus string, n int) Assignment {
		set, err := numa.ParseCPUSet(cpus)
		if err != nil {
			t.Fatal(err)
		}

		return Assignment{ID: ID{"p", "a"}, Policy: numa.PolicyExclusive, CPUs: set, Zones: map[string]int{"node0": n}}
	}

	zones := map[string]int{"node0": 2}
	p := newPod("p", numa.PolicyExclusive, zones, 2)
	for name, test := range map[string]struct {
		reserved []int
		before   []Assignment
		pods     []Pod
		want     string
	}{
		"nothing":                       {nil, []Assignment{exclusive("2,6", 2)}, []Pod{p}, "p/a=2,6 shared=0-1,3-5,7,64-71"},
		"the pod is gone":               {nil, []Assignment{exclusive("2,6", 2)}, nil, "shared=0-7,64-71"},
		"now reserved":                  {[]int{2, 6}, []Assignment{exclusive("2,6", 2)}, []Pod{p}, "p/a=0,4 shared=1-3,5-7,64-71"},
		"one of two now reserved":       {[]int{2}, []Assignment{exclusive("2,6", 2)}, []Pod{p}, "p/a=0,6 shared=1-5,7,64-71"},
		"all reserved: it is not lost":  {[]int{0, 1, 2, 3, 4, 5, 6, 7}, []Assignment{exclusive("2,6", 2)}, []Pod{p}, "p/a=2,6 shared=0-1,3-5,7,64-71"},
		"grown in place":                {nil, []Assignment{exclusive("2,6", 2)}, []Pod{newPod("p", numa.PolicyExclusive, zones, 4)}, "p/a=0,2,4,6 shared=1,3,5,7,64-71"},
		"grown by half a core":          {nil, []Assignment{exclusive("2-3,6", 3)}, []Pod{newPod("p", numa.PolicyExclusive, map[string]int{"node0": 3}, 4)}, "p/a=2-3,6-7 shared=0-1,4-5,64-71"},
		"shrunk in place":               {nil, []Assignment{exclusive("0-2,4-6", 6)}, []Pod{newPod("p", numa.PolicyExclusive, zones, 2)}, "p/a=0,4 shared=1-3,5-7,64-71"},
		"grown beyond the zone":         {nil, []Assignment{exclusive("2,6", 2)}, []Pod{newPod("p", numa.PolicyExclusive, zones, 10)}, "p/a=2,6 p/a refused, keeps true shared=0-1,3-5,7,64-71"},
		"another policy":                {nil, []Assignment{exclusive("2,6", 2)}, []Pod{newPod("p", numa.PolicyNUMA, zones, 2)}, "p/a=0-7 shared=0-7,64-71"},
		"no policy any more":            {nil, []Assignment{exclusive("2,6", 2)}, []Pod{newPod("p", numa.PolicyNone, zones, 2)}, "shared=0-7,64-71"},
		"another zone":                  {nil, []Assignment{exclusive("2,6", 2)}, []Pod{newPod("p", numa.PolicyExclusive, map[string]int{"node1": 2}, 2)}, "p/a=64,68 shared=0-7,65-67,69-71"},
		"a CPU went offline":            {nil, []Assignment{exclusive("2,40", 2)}, []Pod{p}, "p/a=2,6 shared=0-1,3-5,7,64-71"},
		"a container of the pod is new": {nil, []Assignment{exclusive("2,6", 2)}, []Pod{newPod("p", numa.PolicyExclusive, map[string]int{"node0": 4}, 2, 2)}, "p/a=2,6 p/b=0,4 shared=1,3,5,7,64-71"},
		// gocrane assigned the CPUs of the pod to each of its containers and stored no policy.
		"of gocrane": {
			nil,
			[]Assignment{{ID: ID{"p", "a"}, CPUs: numa.NewCPUSet(2, 3, 6, 7)}, {ID: ID{"p", "b"}, CPUs: numa.NewCPUSet(2, 3, 6, 7)}},
			[]Pod{newPod("p", numa.PolicyExclusive, map[string]int{"node0": 4}, 2, 2)},
			"p/a=2,6 p/b=3,7 shared=0-1,4-5,64-71",
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Assign(newMachine(t, 2, 4, test.reserved...), test.before, test.pods)
			if got := formatPlan(&plan); got != test.want {
				t.Errorf("Assign:\ngot  %s\nwant %s", got, test.want)
			}

			again := Assign(newMachine(t, 2, 4, test.reserved...), plan.Assignments, test.pods)
			if formatPlan(&again) != formatPlan(&plan) {
				t.Errorf("Assign with its own result:\ngot  %s\nwant %s", formatPlan(&again), formatPlan(&plan))
			}
		})
	}
}

func TestDivide(t *testing.T) {
	for name, test := range map[string]struct {
		zones map[string]int
		wants []int
		had   []map[string]int
		want  string
	}{
		"one":               {map[string]int{"n0": 4}, []int{4}, nil, "[map[n0:4]]"},
		"fits best":         {map[string]int{"n0": 6, "n1": 2}, []int{2, 4}, nil, "[map[n0:2] map[n0:4]]"},
		"spread":            {map[string]int{"n0": 3, "n1": 3}, []int{4, 2}, nil, "[map[n0:3 n1:1] map[n1:2]]"},
		"keeps":             {map[string]int{"n0": 2, "n1": 2}, []int{2, 2}, []map[string]int{{"n1": 2}}, "[map[n1:2] map[n0:2]]"},
		"keeps what it can": {map[string]int{"n0": 1, "n1": 3}, []int{2, 2}, []map[string]int{{"n0": 2}}, "[map[n0:1 n1:1] map[n1:2]]"},
		"nothing wanted":    {map[string]int{"n0": 1}, []int{0}, nil, "[map[]]"},
		"no containers":     {map[string]int{"n0": 1}, nil, nil, "[]"},
	} {
		got, err := Divide(test.zones, test.wants, test.had)
		if fmt.Sprint(got) != test.want || err != nil {
			t.Errorf("%s: Divide = %v, %v, want %s", name, got, err, test.want)
		}
	}

	if _, err := Divide(map[string]int{"n0": 1}, []int{1, 1}, nil); err == nil || !strings.Contains(err.Error(), "have 1 CPUs, but its containers request 2") {
		t.Errorf("Divide of 1 CPU among requests for 2: %v, want an error with both numbers", err)
	}
}

func TestBindMemory(t *testing.T) {
	m := newMachine(t, 2, 4)
	m.Memory = map[string]units.Bytes{"node0": 3 << 30}
	none := newPod("none", numa.PolicyExclusive, map[string]int{"node0": 1}, 1)
	none.Containers[0].Memory = 0
	pods := []Pod{
		newPod("fits", numa.PolicyExclusive, map[string]int{"node0": 2}, 2), newPod("too", numa.PolicyImmovable, map[string]int{"node0": 1}, 1), none,
		newPod("bare", numa.PolicyExclusive, map[string]int{"node1": 2}, 2), newPod("both", numa.PolicyExclusive, map[string]int{"node0": 1, "node1": 1}, 2),
		newPod("numa", numa.PolicyNUMA, map[string]int{"node0": 1}, 1), newPod("late", numa.PolicyNUMA, map[string]int{"node0": 1}, 1),
	}

	plan := Assign(m, nil, pods)
	zones, why := BindMemory(m, &plan, pods, nil)
	for uid, want := range map[string]string{"fits": "node0", "too": "node0", "none": "no limit", "bare": "zone node1 has 0 MiB left", "both": "zone node1", "numa": "node0", "late": "zone node0 has 0 MiB left"} {
		id := ID{uid, "a"}
		if got := strings.Join(zones[id], ",") + why[id]; !strings.Contains(got, want) {
			t.Errorf("BindMemory: zones and reason of pod %s are %q, want %q", uid, got, want)
		}
	}

	m.MemoryBoundByKubelet = true
	zones, why = BindMemory(m, &plan, pods, nil)
	if len(zones) != 0 || len(why) != len(pods) {
		t.Errorf("BindMemory where the kubelet binds memory = %v, %v, want no zones and a reason for each pod", zones, why)
	}
}

// TestBindMemory_OtherMemory checks that memory in use by unbound pods counts: a container is bound only beside it and a margin, and stays bound as
// long as its limit fits.
func TestBindMemory_OtherMemory(t *testing.T) {
	m := newMachine(t, 1, 4)
	pods := []Pod{newPod("web", numa.PolicyExclusive, map[string]int{"node0": 1}, 1)} // 1 of 8 GiB
	plan := Assign(m, nil, pods)

	id := ID{"web", "a"}
	for _, test := range []struct {
		others       units.Bytes
		first, stays bool
	}{{0, true, true}, {6 << 30, true, true}, {13 << 29, false, true}, {7 << 30, false, true}, {15 << 29, false, false}, {9 << 30, false, false}} {
		m.OtherMemory = map[string]units.Bytes{"node0": test.others}
		for bound, want := range map[bool]bool{false: test.first, true: test.stays} {
			var now map[ID][]string
			if bound {
				now = map[ID][]string{id: {"node0"}}
			}
			if zones, why := BindMemory(m, &plan, pods, now); (zones[id] != nil) != want || (why[id] == "") != want {
				t.Errorf("BindMemory with %d MiB of others, bound before %t = %v, %v, want bound %t", test.others>>20, bound, zones, why, want)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	good := Assignment{ID: ID{"p", "a"}, Policy: numa.PolicyNUMA, Zones: map[string]int{"node0": 2}}
	if err := Validate([]Assignment{good, {ID: ID{"p", "b"}}}); err != nil {
		t.Error(err)
	}

	for want, list := range map[string][]Assignment{
		"is listed twice":    {good, good},
		"names no container": {{ID: ID{"", "a"}}},
		"has policy":         {{ID: ID{"p", "a"}, Policy: numa.PolicyNone}},
		"has -1 CPUs":        {{ID: ID{"p", "a"}, Zones: map[string]int{"node0": -1}}},
	} {
		if err := Validate(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
