// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/units"
)

const gib = 1 << 30

func amounts(milli, gibs int64) cost.Amounts {
	return cost.Amounts{CPU: units.MilliCPU(milli), Memory: units.Bytes(gibs * gib)}
}

// node has 8 cores and 32 GiB, of which so much is free.
func node(name string, milli, gibs int64) Node {
	return Node{Name: name, Allocatable: amounts(8000, 32), Free: amounts(milli, gibs), FreePods: 10}
}

func TestDecide(t *testing.T) {
	three := []Node{node("a", 3000, 20), node("b", 2000, 20), node("c", 1000, 20)}
	small := amounts(2500, 2)
	large := amounts(3500, 2)
	for name, c := range map[string]struct {
		in     Input
		state  recommend.State
		action recommend.Action
		reason string
		says   string
	}{
		"fits":                    {Input{Pod: amounts(3000, 4), Replicas: 1, Nodes: three}, recommend.Clear, "", "", "fits on 1 of 3"},
		"fits nowhere, smaller":   {Input{Pod: amounts(4000, 4), Replicas: 1, Nodes: three, Resized: &small}, recommend.Ready, recommend.Patch, ReasonBlocksPacking, "2.5 cores and 2 GiB would do, and that fits on 1"},
		"fits nowhere either way": {Input{Pod: amounts(4000, 4), Replicas: 1, Nodes: three, Resized: &large}, recommend.Ready, recommend.NoAction, ReasonBlocksPacking, "does not fit either"},
		"use not known":           {Input{Pod: amounts(4000, 4), Replicas: 1, Nodes: three, ResizeProblem: "Too young."}, recommend.Ready, recommend.NoAction, ReasonBlocksPacking, "Too young."},
		"the cluster is full":     {Input{Pod: amounts(7000, 4), Replicas: 1, Nodes: three}, recommend.Clear, "", "", "the cluster is full"},
		"larger than any":         {Input{Pod: amounts(9000, 4), Replicas: 1, Nodes: three}, recommend.Ready, recommend.NoAction, ReasonLargerThanAnyNode, "even empty"},
		"one has cpu, one memory": {Input{Pod: amounts(3000, 20), Replicas: 1, Nodes: []Node{node("a", 4000, 4), node("b", 1000, 30)}}, recommend.Ready, recommend.NoAction, ReasonBlocksPacking, "fits on none"},
		"not where it may run":    {Input{Pod: amounts(2500, 4), Replicas: 1, Nodes: three, Allowed: []bool{false, true, true}}, recommend.Ready, recommend.NoAction, ReasonBlocksPacking, "none of the 2 nodes"},
		"no node takes it":        {Input{Pod: amounts(2500, 4), Replicas: 1, Nodes: three, Allowed: []bool{}}, recommend.Clear, "", "", "No node takes"},
		"scaled down":             {Input{Pod: amounts(4000, 4), Nodes: three}, recommend.Clear, "", "", "no pods"},
		"asks for nothing":        {Input{Replicas: 1, Nodes: three}, recommend.Clear, "", "", "fits on 3"},
		"no nodes":                {Input{Pod: amounts(1, 1), Replicas: 1}, recommend.Clear, "", "", "No node"},
		"overcommitted":           {Input{Pod: amounts(500, 1), Replicas: 1, Nodes: []Node{node("a", -2000, 4), node("b", 400, 4), node("c", 400, 4)}}, recommend.Ready, recommend.NoAction, ReasonBlocksPacking, "0.8 cores"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in)
			if plan.State != c.state || plan.Action != c.action || plan.Reason != c.reason || !strings.Contains(plan.Description, c.says) {
				t.Errorf("Decide = %+v, want %s, %q, reason %q and a text with %q", plan, c.state, c.action, c.reason, c.says)
			}
			if IsBlocked(c.in) != (c.state == recommend.Ready) {
				t.Errorf("IsBlocked = %t, want %t", IsBlocked(c.in), c.state == recommend.Ready)
			}
		})
	}
}

func TestDecide_LargestContainer(t *testing.T) {
	in := Input{Pod: amounts(4000, 4), Largest: "app", LargestRequests: amounts(3900, 3), Replicas: 1, Nodes: []Node{node("a", 3000, 20), node("b", 3000, 20)}}
	if plan := Decide(in); !strings.Contains(plan.Description, "Container app asks for most of it: 3.9 cores and 3 GiB") {
		t.Errorf("description %q, want the largest container and its requests", plan.Description)
	}
	if plan := Decide(in); len(plan.Evidence) != 3 || *plan.Evidence[0].Limit != 3 || plan.Evidence[0].Value != 4 {
		t.Errorf("evidence %v, want 4 of 3 free cores first", plan.Evidence)
	}
}

func TestUnplaced(t *testing.T) {
	nodes := []Node{node("a", 3000, 20), node("b", 2000, 20)}
	pod := func(name string, milli int64, allowed ...bool) Demand {
		return Demand{Name: name, Requests: amounts(milli, 1), Allowed: allowed}
	}
	for name, c := range map[string]struct {
		pods []Demand
		left []string
	}{
		"none":                 {nil, nil},
		"all fit":              {[]Demand{pod("x", 1000), pod("y", 2000), pod("z", 2000)}, nil},
		"one is left":          {[]Demand{pod("x", 2000), pod("y", 2000), pod("z", 2000)}, []string{"z"}},
		"not where it may run": {[]Demand{pod("x", 1000, false, false), pod("y", 1000, false, true)}, []string{"x"}},
		"fewer flags":          {[]Demand{pod("x", 1000, false)}, []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			if left := Unplaced(c.pods, nodes); !slices.Equal(left, c.left) {
				t.Errorf("Unplaced = %v, want %v", left, c.left)
			}
		})
	}

	full := []Node{{Name: "a", Allocatable: amounts(8000, 32), Free: amounts(8000, 32), FreePods: 1}}
	if left := Unplaced([]Demand{pod("x", 1), pod("y", 1)}, full); len(left) != 1 {
		t.Errorf("Unplaced on a node with one free pod = %v, want one of two", left)
	}
	if nodes[0].Free != amounts(3000, 20) {
		t.Errorf("the caller's node has %+v free, want it unchanged", nodes[0].Free)
	}
}

// TestUnplaced_WithinCapacity checks that placements fit into the free capacity, with one node and with many.
func TestUnplaced_WithinCapacity(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var nodes []Node
		free := cost.Amounts{}
		for range r.IntN(5) {
			n := Node{Allocatable: amounts(8000, 32), Free: amounts(r.Int64N(8000)-500, r.Int64N(33)-2), FreePods: r.IntN(8)}
			nodes = append(nodes, n)
			free = free.Plus(n.Free.Max(cost.Amounts{}))
		}

		var pods []Demand
		for i := range r.IntN(12) {
			pods = append(pods, Demand{Name: string(rune('a' + i)), Requests: amounts(r.Int64N(5000), r.Int64N(20))})
		}

		left := Unplaced(pods, nodes)
		placed := cost.Amounts{}
		for _, p := range pods {
			if !slices.Contains(left, p.Name) {
				placed = placed.Plus(p.Requests)
			}
		}

		if placed.CPU > free.CPU || placed.Memory > free.Memory {
			t.Fatalf("placed %+v of %+v in %+v, want no more than is free", placed, pods, nodes)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(int64(4000), int64(1<<30), int64(0), int64(3000), int64(1<<31), int64(8000), int32(1), 1)
	f.Add(int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), int32(-1), -1)
	f.Fuzz(func(t *testing.T, cpu, memory, gpu, freeCPU, freeMemory, whole int64, replicas int32, pods int) {
		in := Input{
			Pod: cost.Amounts{CPU: units.MilliCPU(cpu), Memory: units.Bytes(memory), GPU: gpu}, Replicas: replicas,
			Nodes: []Node{{Name: "a", Allocatable: cost.Amounts{CPU: units.MilliCPU(whole), Memory: units.Bytes(whole)}, Free: cost.Amounts{CPU: units.MilliCPU(freeCPU), Memory: units.Bytes(freeMemory)}, FreePods: pods}},
		}

		plan := Decide(in)
		if plan.Description == "" || plan.State == recommend.Ready && plan.Reason == "" {
			t.Errorf("Decide = %+v, want a description, and a reason if Ready", plan)
		}
		if plan.State == recommend.Ready && (replicas <= 0 || cpu <= 0 && memory <= 0 && gpu <= 0) {
			t.Errorf("Decide without pods or requests = %+v, want no finding", plan)
		}
	})
}
