// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalance_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/rebalance"
	"crane.io/crane/pkg/units"
)

var now = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

func rules(t *testing.T) *nodeload.Rules {
	t.Helper()

	policy, err := nodeload.NewPolicy(nodeload.Spec{
		Metrics:    []nodeload.Metric{{Name: "cpu_usage_avg_5m", Period: time.Minute}, {Name: "mem_usage_avg_5m", Period: time.Minute}},
		Predicates: []nodeload.NamedLimit{{Name: "cpu_usage_avg_5m", Max: 0.65}},
		Marks: map[units.Resource]nodeload.WaterMarks{
			units.CPU: {Low: 0.3, Schedule: 0.7, Evict: 0.85}, units.Memory: {Low: 0.3, Schedule: 0.7, Evict: 0.85},
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	r, err := nodeload.NewRules(policy, nodeload.Strategy{})
	if err != nil {
		t.Fatal(err)
	}

	return r
}

func samples(cpu, memory units.Ratio, at time.Time) []nodeload.Sample {
	return []nodeload.Sample{{Value: cpu, Time: at}, {Value: memory, Time: at}}
}

// node has ten cores and a hundred gibibytes.
func node(r *nodeload.Rules, cpu, memory units.Ratio, at time.Time) *nodeload.Node {
	return r.NodeAt(nodeload.Report{
		Capacity: nodeload.Amount{CPU: 10_000, Memory: 100 << 30},
		Samples:  samples(cpu, memory, at),
	}, &nodeload.Arrivals{}, now)
}

func pod(name string, cores float64, priority int32) rebalance.Pod {
	return rebalance.Pod{
		Namespace: "ns", Name: name, UID: name, Priority: priority, Workload: name,
		Use: nodeload.Amount{CPU: units.MilliCPU(cores * 1000), Memory: 1 << 20},
	}
}

// input has one hot node and others with the loads given.
func input(r *nodeload.Rules, pods []rebalance.Pod, others ...units.Ratio) rebalance.Input {
	in := rebalance.Input{
		Now: now, Limits: rebalance.Limits{Total: 10, PerNode: 10, PerWorkload: 1},
		Fits: func(*rebalance.Pod, int) string { return "" },
		Nodes: []rebalance.Node{{
			Name: "hot", Load: node(r, 0.95, 0.2, now), Pods: pods,
			Hot: []rebalance.Heat{{Resource: units.CPU, Load: 0.95, Evict: 0.85, Rounds: 3}},
		}},
	}

	for i, load := range others {
		in.Nodes = append(in.Nodes, rebalance.Node{Name: fmt.Sprint("n", i), Load: node(r, load, 0.2, now)})
	}

	count := r.NewCount(now)
	for _, n := range in.Nodes {
		count.Add(n.Load, nodeload.Amount{})
	}

	in.Fleet = count.Fleet(nodeload.DefaultMinFresh)
	return in
}

func moved(p rebalance.Plan) string {
	var out []string
	for _, m := range p.Moves {
		out = append(out, fmt.Sprintf("%s->%d", m.Pod.Name, m.To))
	}

	return strings.Join(out, " ")
}

func TestDecide(t *testing.T) {
	r := rules(t)
	for name, test := range map[string]struct {
		change func(*rebalance.Input)
		pods   []rebalance.Pod
		others []units.Ratio
		want   string
		reason string
	}{
		"the smallest that is enough": {nil, []rebalance.Pod{pod("a", 4, 0), pod("b", 2.6, 0), pod("c", 1, 0)}, []units.Ratio{0.3, 0.2}, "b->2", ""},
		"several, the largest first":  {nil, []rebalance.Pod{pod("a", 1, 0), pod("b", 2, 0), pod("c", 0.4, 0), pod("d", 1.1, 0)}, []units.Ratio{0.1}, "b->1 a->1", ""},
		"the lowest priority first":   {nil, []rebalance.Pod{pod("a", 2.6, 100), pod("b", 0.5, 0)}, []units.Ratio{0.1}, "b->1 a->1", ""},
		"too small to help":           {nil, []rebalance.Pod{pod("a", 0.19, 0)}, []units.Ratio{0.1}, "", "too little to be worth a move"},
		"nothing known of its use":    {nil, []rebalance.Pod{pod("a", 0, 0)}, []units.Ratio{0.1}, "", "what it uses is not known"},
		"no room below the limits":    {nil, []rebalance.Pod{pod("a", 2.6, 0)}, []units.Ratio{0.5}, "", "closed by cpu_usage_avg_5m"},
		"the other would become hot":  {nil, []rebalance.Pod{pod("a", 5, 0)}, []units.Ratio{0.3}, "", "would become hot"},
		"nobody else":                 {nil, []rebalance.Pod{pod("a", 2.6, 0)}, nil, "", "there is none"},
		"blocked": {
			func(in *rebalance.Input) { in.Nodes[0].Pods[0].Blocked = "belongs to a DaemonSet" },
			[]rebalance.Pod{pod("a", 2.6, 0)},
			[]units.Ratio{0.1},
			"", "DaemonSet",
		},
		"does not fit": {
			func(in *rebalance.Input) { in.Fits = func(*rebalance.Pod, int) string { return "has a taint" } },
			[]rebalance.Pod{pod("a", 2.6, 0)},
			[]units.Ratio{0.1},
			"", "1 has a taint",
		},
		"cooling down": {
			func(in *rebalance.Input) { in.Nodes[0].Cooling = true },
			[]rebalance.Pod{pod("a", 2.6, 0)},
			[]units.Ratio{0.1},
			"", "cooling down",
		},
		"a budget of none": {
			func(in *rebalance.Input) {
				in.Nodes[0].Pods[0].Budgets = []int{0}
				in.Allowed = []int32{0}
			},
			[]rebalance.Pod{pod("a", 2.6, 0)},
			[]units.Ratio{0.1},
			"", "disruption budget",
		},
		"a budget of one": {func(in *rebalance.Input) {
			in.Allowed = []int32{1}
			for i := range in.Nodes[0].Pods {
				in.Nodes[0].Pods[i].Budgets = []int{0}
			}
		}, []rebalance.Pod{pod("a", 1, 0), pod("b", 1, 0)}, []units.Ratio{0.1}, "a->1", ""},
		"one of a workload": {
			func(in *rebalance.Input) { in.Nodes[0].Pods[1].Workload = "a" },
			[]rebalance.Pod{pod("a", 1, 0), pod("b", 1, 0)},
			[]units.Ratio{0.1},
			"a->1", "",
		},
		"the limit of a node": {
			func(in *rebalance.Input) { in.Limits.PerNode = 1 },
			[]rebalance.Pod{pod("a", 1, 0), pod("b", 1, 0)},
			[]units.Ratio{0.1},
			"a->1", "",
		},
		"the limit of all": {
			func(in *rebalance.Input) { in.Limits.Total = 1 },
			[]rebalance.Pod{pod("a", 1, 0), pod("b", 1, 0)},
			[]units.Ratio{0.1},
			"a->1", "limit of 1 moves",
		},
		"the other's load is stale": {
			func(in *rebalance.Input) { in.Nodes[1].Load = node(rules(t), 0.1, 0.1, now.Add(-time.Hour)) },
			[]rebalance.Pod{pod("a", 1, 0)},
			[]units.Ratio{0.1},
			"", "not known",
		},
		"the other is hot as well": {
			func(in *rebalance.Input) { in.Nodes[1].Hot = in.Nodes[0].Hot },
			[]rebalance.Pod{pod("a", 1, 0)},
			[]units.Ratio{0.1},
			"", "hot itself",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(r, test.pods, test.others...)
			if test.change != nil {
				test.change(&in)
			}

			p := rebalance.Decide(in)
			if got := moved(p); got != test.want {
				t.Errorf("moves %q, want %q; %+v", got, test.want, p.Refusals)
			}
			if test.reason != "" && !strings.Contains(fmt.Sprint(p.Refusals), test.reason) {
				t.Errorf("refusals %+v, want %q", p.Refusals, test.reason)
			}
		})
	}
}

// TestDecide_TooFewReports checks that no pod is moved if too few nodes report their load.
func TestDecide_TooFewReports(t *testing.T) {
	r := rules(t)
	in := input(r, []rebalance.Pod{pod("a", 2.6, 0)}, 0.1)
	in.Fleet = r.NewCount(now).Fleet(nodeload.DefaultMinFresh)
	if p := rebalance.Decide(in); len(p.Moves) != 0 || len(p.Refusals) == 0 {
		t.Errorf("Decide with too few reports = %+v, want no moves and a refusal", p)
	}
}

// TestDecide_Random checks for random loads and pods that a node which gets pods stays below the mark schedule,
// that no budget is exceeded and that no pod is moved twice.
func TestDecide_Random(t *testing.T) {
	r := rules(t)
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		var pods []rebalance.Pod
		for i := range 1 + random.IntN(20) {
			p := pod(fmt.Sprint("p", i), random.Float64()*3, int32(random.IntN(3)))
			p.Budgets = []int{random.IntN(3)}
			pods = append(pods, p)
		}

		others := make([]units.Ratio, random.IntN(6))
		for i := range others {
			others[i] = units.Ratio(random.Float64())
		}

		in := input(r, pods, others...)
		in.Allowed = []int32{0, 1, 3}
		plan := rebalance.Decide(in)

		added := map[int]float64{}
		spent := map[int]int32{}
		seen := map[string]bool{}
		for _, m := range plan.Moves {
			if seen[m.Pod.UID] || m.To == m.From {
				t.Fatalf("seed %d: move %+v, want each pod once and to another node", seed, m)
			}

			seen[m.Pod.UID] = true
			added[m.To] += float64(m.Pod.Use.CPU) / 10_000
			spent[m.Pod.Budgets[0]]++
		}

		for to, more := range added {
			if load := float64(others[to-1]) + more; load > 0.7+1e-9 {
				t.Fatalf("seed %d: node %d ends at %v, want at most 0.7", seed, to, load)
			}
		}

		for b, n := range spent {
			if n > in.Allowed[b] {
				t.Fatalf("seed %d: budget %d is used %d times, want at most %d", seed, b, n, in.Allowed[b])
			}
		}
	}
}

func TestStreaks(t *testing.T) {
	r := rules(t)
	var s rebalance.Streaks
	look := func(cpu units.Ratio, age time.Duration) int {
		heat := s.Look("n", r.Policy, samples(cpu, 0.1, now.Add(-age)), now)
		if len(heat) == 0 {
			return 0
		}

		return heat[0].Rounds
	}

	for i, step := range []struct {
		cpu  units.Ratio
		age  time.Duration
		want int
	}{
		{0.9, 5 * time.Minute, 1},
		{0.9, 5 * time.Minute, 1},
		{0.9, 4 * time.Minute, 2},
		{0.85, 3 * time.Minute, 0},
		{0.9, 2 * time.Minute, 1},
		{0.9, time.Minute, 2},
		{0.9, time.Hour, 0},
		{0.9, 0, 1},
	} {
		if got := look(step.cpu, step.age); got != step.want {
			t.Errorf("step %d: Look = %d rounds, want %d", i, got, step.want)
		}
	}

	s.Keep(func(string) bool { return false })
	if got := look(0.9, 0); got != 1 {
		t.Errorf("Look after Keep dropped the node = %d rounds, want 1", got)
	}

	both := s.Look("m", r.Policy, samples(0.87, 0.99, now), now)
	if len(both) != 2 || both[0].Resource != units.Memory {
		t.Errorf("Look = %+v, want the hotter resource, memory, first", both)
	}
}
