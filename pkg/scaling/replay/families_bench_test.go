// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"crane.io/crane/pkg/scaling"
	"crane.io/crane/test/families"
)

// seriesFamily is a directory of series of one origin, which is one fleet. Families of one group share workloads: none is used to choose
// rules for another of its group.
type seriesFamily struct {
	name, group, pattern string
	every                int // of how many series one is used
}

func seriesFamilies() []seriesFamily {
	return []seriesFamily{
		{"traces", "traces", "traces/workload-*.csv", 1},
		{"requests", "requests", "data/requests/*.csv", 1},
		{"known-cause", "known-cause", "data/known-cause/*.csv", 1},
		{"vm-cpu", "vm", "data/vm-cpu/*.csv", 4},
		{"vm-memory", "vm", "data/vm-memory/*.csv", 4},
	}
}

// workloads returns the usable series of a family.
func (f seriesFamily) workloads(b *testing.B) []workload {
	b.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "shared", f.pattern))
	if err != nil || len(paths) == 0 {
		b.Skipf("no series in %s beside the repository", f.pattern)
	}
	var all []Named
	for i := 0; i < len(paths); i += f.every {
		s, err := families.ReadCSV(paths[i])
		if err != nil {
			b.Fatalf("%s: %v", paths[i], err)
		}
		all = append(all, Named{strings.TrimSuffix(filepath.Base(paths[i]), ".csv"), s})
	}
	out, _ := usableWorkloads(DefaultPlan(), all)
	return out
}

// variants returns the rules to choose from; the default ones are the last.
func variants() []scaling.PriceRules {
	var out []scaling.PriceRules
	for _, aim := range []float64{0.6, 0.7, 0.8, 1} {
		for _, v := range []scaling.PriceRules{
			{MinPrice: 0.005, Aim: aim}, {MinPrice: 0.005, Aim: aim, MaxCorrection: 0.5}, {MinPrice: 0.05, Aim: aim, MaxCorrection: 0.5},
		} {
			if v != scaling.DefaultPriceRules() {
				out = append(out, v)
			}
		}
	}
	return append(out, scaling.DefaultPriceRules())
}

// cost is the sum of the scores of a series over the scenarios.
type cost struct{ minutes, hours float64 }

func (c *cost) add(o cost) { c.minutes, c.hours = c.minutes+o.minutes, c.hours+o.hours }

// fleetCosts are the costs by series of the HPA alone, then with the forecast by variant.
type fleetCosts struct {
	names    []string
	reactive []cost
	ahead    [][]cost
}

// scoreFamily replays the series of a family as one fleet, with 5 and 50 pods that start in 180 s.
func scoreFamily(b *testing.B, all []workload, grid []scaling.PriceRules) fleetCosts {
	b.Helper()
	out := fleetCosts{reactive: make([]cost, len(all)), ahead: make([][]cost, len(grid))}
	for _, w := range all {
		out.names = append(out.names, w.Name)
	}
	plan := DefaultPlan()
	run := func(into []cost, scaler func(w workload, cfg Config) (Scaler, error)) {
		for _, pods := range plan.Pods {
			var fleet []*simulation
			for _, w := range all {
				cfg := plan.config(w.p95, pods, 3*time.Minute)
				s, err := scaler(w, cfg)
				if err != nil {
					b.Fatal(err)
				}
				one, err := newSimulation(cfg, w.Series, s)
				if err != nil {
					b.Fatal(err)
				}
				fleet = append(fleet, one)
			}
			runTogether(fleet)
			for i, one := range fleet {
				into[i].add(cost{one.score.UnderCapacity.Minutes(), one.score.ReplicaHours})
			}
		}
	}
	run(out.reactive, func(_ workload, cfg Config) (Scaler, error) { return Reactive{cfg.Target, cfg.Tolerance}, nil })
	for k, v := range grid {
		out.ahead[k] = make([]cost, len(all))
		var fleets []*scaling.Fleet // by number of pods, whose scenarios follow one another
		run(out.ahead[k], func(w workload, cfg Config) (Scaler, error) {
			if w.Name == all[0].Name {
				fleet, err := scaling.NewFleetWith(scaling.DefaultBudget, v)
				if err != nil {
					return nil, err
				}
				fleets = append(fleets, fleet)
			}
			return NewPredictive(cfg, w.foresight.newForecaster(), fleets[len(fleets)-1], w.Name)
		})
	}
	return out
}

// total returns the sums over series relative to those of the HPA alone.
func (f fleetCosts) total(k int) cost {
	var own, base cost
	for i := range f.reactive {
		own.add(f.ahead[k][i])
		base.add(f.reactive[i])
	}
	return cost{own.minutes / base.minutes, own.hours / base.hours}
}

// mostHours is the most that the replica hours of a family may be, relative to those of the HPA alone, to choose rules.
const mostHours = 1.09

// chosen returns the rules with the fewest minutes under capacity on the families of other groups, all families alike, of those whose
// replica hours are at most mostHours in each of them; those closest to it where none has so few.
func chosen(grid []scaling.PriceRules, costs map[string]fleetCosts, group string) int {
	best, least := 0, math.Inf(1)
	for k := range grid {
		sum := 0.0
		for _, f := range seriesFamilies() {
			if f.group == group {
				continue
			}
			t := costs[f.name].total(k)
			const penalty = 1e3
			sum += math.Log(t.minutes) + penalty*max(0, t.hours-mostHours)
		}
		if sum < least {
			best, least = k, sum
		}
	}
	return best
}

// violations returns the series with more minutes under capacity than with the HPA alone, and those where nothing is saved for more than
// 2 % of the replica hours.
func (f fleetCosts) violations(k int) (out []string) {
	for i, base := range f.reactive {
		own := f.ahead[k][i]
		switch hours := own.hours / base.hours; {
		case own.minutes > base.minutes:
			out = append(out, fmt.Sprintf("%s: %.0f minutes instead of %.0f", f.names[i], own.minutes, base.minutes))
		case own.minutes == base.minutes && hours > 1.02:
			out = append(out, fmt.Sprintf("%s: %.3f of the replica hours for nothing", f.names[i], hours))
		}
	}
	return out
}

// BenchmarkLeaveOneFamilyOut prints, for each family, the score of the rules chosen on the families of other groups, of the default ones,
// the series that are worse off with the default ones than with the HPA alone, and the scores of all rules.
func BenchmarkLeaveOneFamilyOut(b *testing.B) {
	began := time.Now()
	grid := variants()
	standard := len(grid) - 1
	costs := map[string]fleetCosts{}
	var lock sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, f := range seriesFamilies() {
		all := f.workloads(b)
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			one := scoreFamily(b, all, grid)
			lock.Lock()
			defer lock.Unlock()
			costs[f.name] = one
		})
	}
	group.Wait()
	var text strings.Builder
	text.WriteString("| family left out | series | aim, correction, price | chosen on the others | default |\n| --- | --- | --- | --- | --- |\n")
	var base, fitted, fixed cost
	for _, f := range seriesFamilies() {
		c := costs[f.name]
		k := chosen(grid, costs, f.group)
		one, other := c.total(k), c.total(standard)
		fmt.Fprintf(&text, "| %s | %d | %g, %g, %g | %.3f @ %.3f | %.3f @ %.3f |\n", f.name, len(c.names), grid[k].Aim, grid[k].MaxCorrection,
			grid[k].MinPrice, one.minutes, one.hours, other.minutes, other.hours)
		for i := range c.reactive {
			base.add(c.reactive[i])
			fitted.add(c.ahead[k][i])
			fixed.add(c.ahead[standard][i])
		}
	}
	fmt.Fprintf(&text, "| sum | | | %.3f @ %.3f | %.3f @ %.3f |\n\nWorse off with the default rules:\n", fitted.minutes/base.minutes,
		fitted.hours/base.hours, fixed.minutes/base.minutes, fixed.hours/base.hours)
	for _, f := range seriesFamilies() {
		for _, v := range costs[f.name].violations(standard) {
			fmt.Fprintf(&text, "- %s, %s\n", f.name, v)
		}
	}
	text.WriteString("\nAll rules:\n")
	for k, v := range grid {
		fmt.Fprintf(&text, "- %g, %g, %g:", v.Aim, v.MaxCorrection, v.MinPrice)
		for _, f := range seriesFamilies() {
			t := costs[f.name].total(k)
			fmt.Fprintf(&text, " %s %.3f @ %.3f, %d worse off;", f.name, t.minutes, t.hours, len(costs[f.name].violations(k)))
		}
		text.WriteString("\n")
	}
	// b.Log would cut the table short.
	fmt.Printf("Scaling ahead, one family left out at a time; %s of wall time\n\n%s\n", time.Since(began).Round(time.Second), &text)
	for b.Loop() {
	}
}
