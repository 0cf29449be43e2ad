// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package idlenode

import (
	"math"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/packing"
)

const gib = 1 << 30

func flat(n int, v float64) observation.Hours { return slices.Repeat(observation.Hours{v}, n) }

func settingsOf(t *testing.T, pairs ...string) Settings {
	t.Helper()

	config := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		config[pairs[i]] = pairs[i+1]
	}

	s, err := ParseSettings(config)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// fixture is a node of 4 cores and 16 GiB that runs a pod of a DaemonSet and one of its own that does little.
func fixture() Input {
	return Input{
		Ready: true, Capacity: cost.Amounts{CPU: 4000, Memory: 16 * gib},
		Pods: []Pod{
			{Demand: packing.Demand{Name: "kube-system/proxy", Requests: cost.Amounts{CPU: 100}}, OnEveryNode: true},
			{Demand: packing.Demand{Name: "shop/web", Requests: cost.Amounts{CPU: 1000, Memory: gib}}},
		},
		OtherNodes: []packing.Node{{Name: "b", Allocatable: cost.Amounts{CPU: 4000, Memory: 16 * gib}, Free: cost.Amounts{CPU: 2000, Memory: 4 * gib}, FreePods: 10}},
		OtherPods:  flat(168, 1), CPUUse: flat(168, 0.2), MemoryUse: flat(168, 2*gib), CPURequest: flat(168, 1.1), MemoryRequest: flat(168, gib),
	}
}

// bare is the node with pods of DaemonSets alone.
func bare() Input {
	in := fixture()
	in.Pods = in.Pods[:1]
	in.OtherPods = flat(168, 0)

	return in
}

func with(in Input, change func(*Input)) Input {
	change(&in)
	return in
}

func TestDecide(t *testing.T) {
	standard := settingsOf(t)
	gocrane := settingsOf(t, "cpu-usage-utilization", "0")
	for name, c := range map[string]struct {
		in     Input
		s      Settings
		state  recommend.State
		reason string
		says   string
	}{
		"daemon pods alone":        {bare(), standard, recommend.Ready, ReasonOnlyDaemonPods, "For 24h it has run nothing but pods of DaemonSets"},
		"no pods at all":           {with(bare(), func(in *Input) { in.Pods = nil }), gocrane, recommend.Ready, ReasonOnlyDaemonPods, "(0 now)"},
		"since an hour":            {with(bare(), func(in *Input) { in.OtherPods = flat(1, 0) }), standard, recommend.Learning, "", "known for 1 of the last 24"},
		"pods of it not known":     {with(bare(), func(in *Input) { in.OtherPods = nil }), standard, recommend.NoData, "", "No number of its pods is known"},
		"stale":                    {with(bare(), func(in *Input) { in.OtherPods = append(flat(160, 0), observation.Unknown(8)...) }), standard, recommend.NoData, "", "8h old"},
		"ran something last night": {with(bare(), func(in *Input) { in.OtherPods[160] = 2 }), gocrane, recommend.Clear, "", "no threshold"},
		"ran something small":      {with(bare(), func(in *Input) { in.OtherPods[160] = 2 }), standard, recommend.Ready, ReasonLowUse, "It has hardly been used for 7d."},
		"low use":                  {fixture(), standard, recommend.Ready, ReasonLowUse, "p99 of cpu use over 7d 5 % of capacity (limit 10)"},
		"no threshold":             {fixture(), gocrane, recommend.Clear, "", "no threshold"},
		"busy cpu":                 {with(fixture(), func(in *Input) { in.CPUUse = flat(168, 1) }), standard, recommend.Clear, "", "cpu use reaches 25 %"},
		"busy memory":              {with(fixture(), func(in *Input) { in.MemoryUse = flat(168, 8*gib) }), standard, recommend.Clear, "", "memory use reaches 50 %"},
		"busy cpu, memory unknown": {with(fixture(), func(in *Input) {
			in.CPUUse = flat(168, 1)
			in.MemoryUse = nil
		}), standard, recommend.Clear, "", "cpu use"},
		"no memory":                  {with(fixture(), func(in *Input) { in.MemoryUse = nil }), standard, recommend.NoData, "", "No memory use is known for the last 7d."},
		"short history":              {with(fixture(), func(in *Input) { in.CPUUse = flat(30, 0.2) }), standard, recommend.Learning, "", "30 of the last 168"},
		"nan":                        {with(fixture(), func(in *Input) { in.CPUUse = flat(168, math.NaN()) }), standard, recommend.NoData, "", "No cpu use"},
		"below zero":                 {with(fixture(), func(in *Input) { in.CPUUse = flat(168, -5) }), standard, recommend.NoData, "", "No cpu use"},
		"capacity unknown":           {with(fixture(), func(in *Input) { in.Capacity = cost.Amounts{} }), standard, recommend.NoData, "", "capacity"},
		"peaks count":                {with(fixture(), func(in *Input) { copy(in.CPUUse[20:], flat(4, 3)) }), standard, recommend.Clear, "", "cpu use reaches 75 %"},
		"requests":                   {fixture(), settingsOf(t, "cpu-request-utilization", "0.3", "memory-request-utilization", "0.1"), recommend.Ready, ReasonLowUse, "requested memory"},
		"requests above":             {fixture(), settingsOf(t, "cpu-request-utilization", "0.2"), recommend.Clear, "", "requested cpu reaches 27.5 %"},
		"no room elsewhere":          {with(fixture(), func(in *Input) { in.OtherNodes = nil }), standard, recommend.Clear, "", "no room elsewhere for shop/web"},
		"a pod without a controller": {with(fixture(), func(in *Input) { in.Pods = slices.Clone(in.Pods); in.Pods[1].Unmanaged = true }), standard, recommend.Clear, "", "no controller would replace pod shop/web"},
		"a GPU in use":               {with(fixture(), func(in *Input) { in.Pods = slices.Clone(in.Pods); in.Pods[1].Requests.GPU = 1 }), standard, recommend.Clear, "", "has a GPU"},
		"control plane":              {with(bare(), func(in *Input) { in.ControlPlane = true }), standard, recommend.Clear, "", "control plane"},
		"not ready":                  {with(bare(), func(in *Input) { in.Ready = false }), standard, recommend.Clear, "", "out of order"},
		"nothing known":              {Input{Ready: true}, standard, recommend.NoData, "", "No number of its pods"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in, c.s)
			if plan.State != c.state || plan.Reason != c.reason || !strings.Contains(plan.Explain(), c.says) {
				t.Errorf("Decide = %+v, want %s, reason %q and a text with %q", plan, c.state, c.reason, c.says)
			}
			if (plan.Action == recommend.Delete) != (c.state == recommend.Ready) || (len(plan.Evidence) > 0) != (c.state == recommend.Ready) {
				t.Errorf("Decide = %+v, want Delete and evidence only for a Ready plan", plan)
			}
		})
	}
}

func TestParseSettings(t *testing.T) {
	if s := settingsOf(t); s.CPUUse != 0.1 || s.MemoryUse != 0.25 || s.CPUPercentile != 0.99 || s.Hours != 168 || s.EmptyHours != 24 {
		t.Errorf("ParseSettings(nil) = %+v, want the defaults", s)
	}
	// A threshold of gocrane's is the only one then, as it was there.
	if s := settingsOf(t, "memory-request-utilization", "0.3"); s.CPUUse != 0 || s.MemoryUse != 0 || s.MemoryRequest != 0.3 {
		t.Errorf("ParseSettings with one threshold = %+v, want only that one", s)
	}

	for key, value := range map[string]string{"cpu-percentile": "99", "cpu-usage-utilization": "x", "empty-for": "0s", "cpu": "1"} {
		if _, err := ParseSettings(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("ParseSettings(%s=%s): %v, want an error that names the key", key, value, err)
		}
	}
}

// TestDecide_Monotone: a node that is not idle does not become so by use that grows, nor by data that go missing.
func TestDecide_Monotone(t *testing.T) {
	s := settingsOf(t)
	idle := true
	for i := range 40 {
		in := fixture()
		in.CPUUse = flat(168, float64(i)*0.05)
		now := Decide(in, s).Action == recommend.Delete
		if now && !idle {
			t.Fatalf("Decide at %g cores is idle again, want busy from the first busy value on", float64(i)*0.05)
		}

		idle = now
	}

	if idle {
		t.Error("the node is idle at every use, want it busy at the largest")
	}

	for gone := range 168 {
		in := fixture()
		in.CPUUse = flat(168, 1)
		in.OtherPods = flat(168, 1)
		for i := range gone {
			in.CPUUse[i] = math.NaN()
		}

		if Decide(in, s).Action == recommend.Delete {
			t.Fatalf("Decide with %d values gone is idle, want busy", gone)
		}
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(4000.0, 0.1, 1e9, 0.0, 168, true)
	f.Add(0.0, math.NaN(), math.Inf(1), -1.0, 0, false)
	f.Fuzz(func(t *testing.T, capacity, cpu, memory, others float64, hours int, daemon bool) {
		if hours < 0 || hours > 1000 {
			return
		}

		in := fixture()
		in.Capacity.CPU = 4000
		if capacity >= 0 && capacity < 1e15 {
			in.Capacity.Memory = 16 * gib
		}

		in.OtherPods = flat(hours, others)
		in.CPUUse = flat(hours, cpu)
		in.MemoryUse = flat(hours, memory)
		in.Pods[1].OnEveryNode = daemon

		plan := Decide(in, settingsOf(t))
		if plan.Description == "" {
			t.Errorf("Decide = %+v, want a description", plan)
		}

		// Idle are only nodes of which enough is known.
		known := observation.IsKnown(cpu) && observation.IsKnown(memory) && hours >= 152
		if plan.Action == recommend.Delete && !known && !(daemon && others == 0 && hours >= 22) {
			t.Errorf("Decide = %+v with %v %v %v of %d hours, want idle only with enough data", plan, cpu, memory, others, hours)
		}
	})
}
