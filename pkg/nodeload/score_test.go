// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

func strategies() []Strategy {
	return []Strategy{{Name: Spread}, {Name: Pack, Target: 0.5}, {Name: Risk, Margin: 2}}
}

// TestCostOf_FollowsLoad checks that Spread and Risk prefer less load, and Pack more up to its target and less above.
func TestCostOf_FollowsLoad(t *testing.T) {
	for _, s := range strategies() {
		r := rules(t, s)
		f := fleet(r, at(0), r.NodeAt(loadedReport(r, 0.3, 0.3, at(0)), &Arrivals{}, at(0)))

		cost := func(load units.Ratio) Cost {
			return f.CostOf(r.NodeAt(loadedReport(r, load, load, at(0)), &Arrivals{}, at(0)), Amount{}, at(0).UnixNano()).Cost
		}
		for load := units.Ratio(0); load < 1.2; load += 0.01 {
			rises := cost(load+0.01) > cost(load)
			switch {
			case s.Name != Pack && !rises:
				t.Fatalf("%s: cost does not rise at %v, want it to", s.Name, load)
			case s.Name == Pack && load+0.01 < 0.5 && rises:
				t.Fatalf("%s: cost rises below the target at %v, want it to fall", s.Name, load)
			case s.Name == Pack && load > 0.5 && !rises:
				t.Fatalf("%s: cost does not rise above the target at %v, want it to", s.Name, load)
			}
		}

		if s.Name == Pack && cost(0.51) <= cost(0) {
			t.Errorf("cost above the target = %v, want more than the %v of an empty node", cost(0.51), cost(0))
		}
	}
}

func TestCostOf_Risk(t *testing.T) {
	r := rules(t, Strategy{Name: Risk})
	steady := loadedReport(r, 0.4, 0.3, at(0))
	swinging := loadedReport(r, 0.35, 0.3, at(0))
	swinging.Deviation = [2]units.Ratio{0.2, 0}
	a := r.NodeAt(steady, &Arrivals{}, at(0))
	b := r.NodeAt(swinging, &Arrivals{}, at(0))
	f := fleet(r, at(0), a, b)

	ca := f.CostOf(a, Amount{CPU: 100}, at(0).UnixNano()).Cost
	cb := f.CostOf(b, Amount{CPU: 100}, at(0).UnixNano()).Cost
	if ca >= cb {
		t.Errorf("cost of a steady node at 40 %% = %v, of one at 35 %% that varies by 20 %% %v, want the steady one cheaper", ca, cb)
	}
}

// TestCostOf_UnknownLoad checks that a node without load is between the best and the worst, and that pending load
// counts against it.
func TestCostOf_UnknownLoad(t *testing.T) {
	r := rules(t, Strategy{})
	look := func(load units.Ratio) *Node { return r.NodeAt(loadedReport(r, load, load, at(0)), &Arrivals{}, at(0)) }
	stale := r.NodeAt(loadedReport(r, 0.01, 0.01, at(-90000)), &Arrivals{}, at(0))
	absent := r.NodeAt(Report{Capacity: testCapacity(), Samples: make([]Sample, len(r.Policy.Metrics))}, &Arrivals{}, at(0))

	f := fleet(r, at(0), look(0.2), look(0.4), look(0.6), stale, absent)
	if f.States != [3]int{Absent: 1, Stale: 1, Fresh: 3} {
		t.Errorf("States = %v, want 1 absent, 1 stale and 3 fresh", f.States)
	}

	cost := func(n *Node) (Cost, bool) {
		p := f.CostOf(n, Amount{CPU: 100, Memory: gib}, at(0).UnixNano())
		return p.Cost, p.Unknown
	}

	middle, _ := cost(look(0.4))
	for _, n := range []*Node{stale, absent} {
		got, unknown := cost(n)
		if !unknown || math.Abs(float64(got-middle)) > 1e-9 {
			t.Errorf("cost %v, unknown %v, want that of the mean, %v", got, unknown, middle)
		}
	}

	var arrivals Arrivals
	arrivals.Add("pod", Amount{CPU: 1000, Memory: gib}, time.Time{})

	if got, _ := cost(r.NodeAt(Report{Capacity: testCapacity(), Samples: make([]Sample, len(r.Policy.Metrics))}, &arrivals, at(0))); got <= middle {
		t.Errorf("cost of an unknown node with an arriving pod = %v, want more than the mean %v", got, middle)
	}
}

// TestFleet_MetricsOutOfForce checks that a metric reported by few nodes is ignored everywhere, and that the fleet abstains
// without any.
func TestFleet_MetricsOutOfForce(t *testing.T) {
	r := rules(t, Strategy{})
	report := loadedReport(r, 0.9, 0.1, at(0))
	for _, daily := range []int{2, 5} {
		report.Samples[daily] = Sample{}
	}

	hot := r.NodeAt(report, &Arrivals{}, at(0))
	f := fleet(r, at(0), hot, hot)
	if f.InForce(2) || !f.InForce(0) || f.States[Fresh] != 2 {
		t.Errorf("InForce of 1d %v, of 5m %v, states %v, want false, true and 2 fresh", f.InForce(2), f.InForce(0), f.States)
	}
	if p := f.CostOf(hot, Amount{}, at(0).UnixNano()); p.Unknown || math.Abs(float64(p.Cost)-0.5) > 1e-9 {
		t.Errorf("CostOf = %+v, want the mean of 0.9 and 0.1", p)
	}

	absent := r.NodeAt(Report{Capacity: testCapacity(), Samples: make([]Sample, len(r.Policy.Metrics))}, &Arrivals{}, at(0))
	f = fleet(r, at(0), hot, absent, absent)
	if !f.Abstains() || f.HasWeights() {
		t.Error("Abstains = false with a third of the nodes reporting, want true")
	}

	if limit, _ := f.Closed(hot, Amount{}, at(0).UnixNano()); limit != Open {
		t.Errorf("Closed of a fleet that abstains = %d, want open", limit)
	}
	if empty := fleet(r, at(0)); !empty.Abstains() {
		t.Error("Abstains without nodes = false, want true")
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		name                  string
		lowest, highest, step Cost
		cost                  Cost
		least, most           int64
	}{
		{"the best", 0.1, 0.5, 0.01, 0.1, 100, 100},
		{"next to the best", 0.1, 0.5, 0.01, 0.1001, 99, 99},
		{"a pod worse", 0.1, 0.5, 0.01, 0.11, 79, 80},
		{"far off", 0.1, 0.5, 0.01, 0.5, 0, 0},
		{"all alike", 0.3, 0.3, 0.01, 0.3, 100, 100},
		{"less apart than a pod", 0.3, 0.301, 0.01, 0.301, 89, 90},
		{"a pod of no size", 0.3, 0.3, 0, 0.3, 100, 100},
	} {
		if got := NewScale(c.lowest, c.highest, c.step).Score(c.cost); got < c.least || got > c.most {
			t.Errorf("%s: %d, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

// TestScore_Random checks for random input that scores are from 0 to 100, the best has 100, and the order is that
// of cost.
func TestScore_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	wild := []float64{0, 1e-300, 0.3, 0.65, 1, 99.9, 100}
	for range 2000 {
		r := rules(t, strategies()[rng.IntN(3)])
		nodes := make([]*Node, 1+rng.IntN(6))
		use := Amount{CPU: units.MilliCPU(rng.Int64N(1 << uint(1+rng.IntN(60)))), Memory: units.Bytes(rng.Int64N(1 << uint(1+rng.IntN(62))))}
		for i := range nodes {
			report := loadedReport(r, units.Ratio(wild[rng.IntN(len(wild))]), units.Ratio(wild[rng.IntN(len(wild))]), at(rng.IntN(40000)-30000))
			report.Deviation = [2]units.Ratio{units.Ratio(rng.Float64()), 1}
			if rng.IntN(4) == 0 {
				report.Capacity = Amount{CPU: units.MilliCPU(rng.IntN(2))}
			}

			var arrivals Arrivals
			arrivals.Add("pod", use, at(rng.IntN(20000)-10000))
			nodes[i] = r.NodeAt(report, &arrivals, at(0))
		}

		checkScores(t, fleet(r, at(0), nodes...), nodes, use)
	}
}

func checkScores(t *testing.T, f *Fleet, nodes []*Node, use Amount) {
	t.Helper()

	costs := make([]Cost, len(nodes))
	lowest := Cost(math.Inf(1))
	highest := Cost(math.Inf(-1))
	for i, n := range nodes {
		costs[i] = f.CostOf(n, use, f.Time.UnixNano()).Cost
		if c := float64(costs[i]); math.IsNaN(c) || math.IsInf(c, 0) {
			t.Fatalf("CostOf = %v, want a finite cost", c)
		}

		lowest = min(lowest, costs[i])
		highest = max(highest, costs[i])
	}

	scale := NewScale(lowest, highest, f.Step(use))
	for i := range costs {
		score := scale.Score(costs[i])
		if score < 0 || score > 100 || (costs[i] == lowest) != (score == 100) {
			t.Fatalf("Score(%v) = %d, want 0 to 100, and 100 only for the lowest of %v to %v", costs[i], score, lowest, highest)
		}

		for j := range costs {
			if costs[i] < costs[j] && score < scale.Score(costs[j]) {
				t.Fatalf("Score(%v) = %d, want at least that of the higher cost %v", costs[i], score, costs[j])
			}
		}
	}
}

// FuzzAnnotationToScore checks that decisions work for any annotation, and that invalid ones count as unknown.
func FuzzAnnotationToScore(f *testing.F) {
	for _, seed := range []string{
		"0.63012,2023-11-14T22:13:20Z", "", ",", "0.5,2023-11-14T22:13:20Z,", "-1,2023-11-14T22:13:20Z", "1e308,2023-11-14T22:13:20Z",
		"NaN,2023-11-14T22:13:20Z", "0.5,2099-01-01T00:00:00Z", "0x1p-2,2023-11-14T22:13:20Z", "Inf,Inf", "0.5,0001-01-01T00:00:00Z",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		r := rules(t, Strategy{})
		samples, bad := r.Read(Format{}, map[string]string{"cpu_usage_avg_5m": text})
		usual := r.NodeAt(loadedReport(r, 0.3, 0.3, at(0)), &Arrivals{}, at(0))

		n := r.NodeAt(Report{Capacity: testCapacity(), Samples: samples}, &Arrivals{}, at(0))
		if bad != (ParseErrors{}) && n.Fresh != 0 {
			t.Fatalf("a node with the annotation %q is fresh, want it unknown", text)
		}

		fl := fleet(r, at(0), usual, usual, n)
		checkScores(t, fl, []*Node{usual, n}, Amount{CPU: 100, Memory: gib})

		if limit, _ := fl.Closed(n, Amount{CPU: 100}, at(0).UnixNano()); limit != Open && samples[0].Value+0.01 <= 0.65 {
			t.Fatalf("a node with the annotation %q is closed by limit %d, want open", text, limit)
		}
	})
}

func TestNewRules_Invalid(t *testing.T) {
	policy, err := NewPolicy(GocraneSpec())
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range []Strategy{{Name: "Best"}, {Target: 1}, {Target: -1}, {Margin: math.Inf(1)}, {Margin: math.NaN()}, {Target: units.Ratio(math.NaN())}} {
		if _, err := NewRules(policy, s); err == nil {
			t.Errorf("NewRules with %+v succeeds, want an error", s)
		}
	}

	if r, err := NewRules(policy, Strategy{}); err != nil || r.Strategy.Name != Spread {
		t.Errorf("NewRules with the zero strategy: %v, want Spread", err)
	}
	if _, err := NewRules(&Policy{Metrics: make([]Metric, 65)}, Strategy{}); err == nil {
		t.Error("NewRules with 65 metrics succeeds, want an error")
	}
}
