// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"crane.io/crane/pkg/scaling"
	"crane.io/crane/test/families"
)

// usableFamily returns the series of a family that can be replayed: every fourth of the VMs, which are many.
func usableFamily(b *testing.B, f families.RecordedFamily) []workload {
	b.Helper()

	nth := 1
	if f.Group == "vm" {
		nth = 4
	}

	var all []Named
	for _, s := range f.Read(b, nth) {
		all = append(all, Named(s))
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

func (c *cost) add(o cost) {
	c.minutes += o.minutes
	c.hours += o.hours
}

// fleetCosts are the costs by series of the HPA alone, then with the forecast by variant.
type fleetCosts struct {
	names    []string
	reactive []cost
	ahead    [][]cost
}

// scoreFamily replays the series of a family as one fleet, with 5 and 50 pods that start in 180 s.
func scoreFamily(all []workload, grid []scaling.PriceRules) (fleetCosts, error) {
	out := fleetCosts{ahead: make([][]cost, len(grid))}
	for _, w := range all {
		out.names = append(out.names, w.Name)
	}

	var err error
	if out.reactive, err = replayFleet(all, scaling.DefaultPriceRules(), func(_ workload, cfg Config, _ *scaling.Fleet) (Scaler, error) {
		return Reactive{cfg.Target, cfg.Tolerance}, nil
	}); err != nil {
		return fleetCosts{}, err
	}

	for k, v := range grid {
		if out.ahead[k], err = replayFleet(all, v, func(w workload, cfg Config, fleet *scaling.Fleet) (Scaler, error) {
			return NewPredictive(cfg, w.foresight.newForecaster(), fleet, w.Name)
		}); err != nil {
			return fleetCosts{}, err
		}
	}

	return out, nil
}

// replayFleet returns the costs of each series with a scaler, whose fleet has the rules.
func replayFleet(all []workload, rules scaling.PriceRules, scaler func(w workload, cfg Config, fleet *scaling.Fleet) (Scaler, error)) ([]cost, error) {
	out := make([]cost, len(all))
	plan := DefaultPlan()
	for _, pods := range plan.Pods {
		fleet, err := scaling.NewFleetWith(scaling.DefaultBudget, rules)
		if err != nil {
			return nil, err
		}

		simulations := make([]*simulation, len(all))
		for i, w := range all {
			cfg := plan.config(w.p95, pods, 3*time.Minute)
			s, err := scaler(w, cfg, fleet)
			if err != nil {
				return nil, err
			}

			simulations[i], err = newSimulation(cfg, w.Series, s)
			if err != nil {
				return nil, err
			}
		}

		runTogether(simulations)
		for i, one := range simulations {
			out[i].add(cost{one.score.UnderCapacity.Minutes(), one.score.ReplicaHours})
		}
	}

	return out, nil
}

// scoreFamilies replays all families.
func scoreFamilies(b *testing.B, grid []scaling.PriceRules) map[string]fleetCosts {
	b.Helper()

	out := map[string]fleetCosts{}
	var lock sync.Mutex
	var scores []func()
	for _, f := range families.Recorded() {
		all := usableFamily(b, f)
		scores = append(scores, func() {
			one, err := scoreFamily(all, grid)
			if err != nil {
				b.Errorf("scoreFamily(%s): %v, want costs", f.Name, err)
			}

			lock.Lock()
			defer lock.Unlock()

			out[f.Name] = one
		})
	}

	families.OnAllCores(scores)
	if b.Failed() {
		b.FailNow()
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

// chosen returns the rules with the fewest minutes under capacity on the families of other groups, of those whose replica hours are at
// most mostHours in each of them; those closest to it where none has so few.
func chosen(grid []scaling.PriceRules, costs map[string]fleetCosts, group string) int {
	return families.LeastLoss(len(grid), group, func(family string, k int) float64 {
		const penalty = 1e3
		t := costs[family].total(k)
		return math.Log(t.minutes) + penalty*max(0, t.hours-mostHours)
	})
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
	costs := scoreFamilies(b, grid)
	var text strings.Builder
	text.WriteString("| family left out | series | aim, correction, price | chosen on the others | default |\n| --- | --- | --- | --- | --- |\n")

	var base, fitted, fixed cost
	for _, f := range families.Recorded() {
		c := costs[f.Name]
		k := chosen(grid, costs, f.Group)
		one := c.total(k)
		other := c.total(standard)
		fmt.Fprintf(&text, "| %s | %d | %g, %g, %g | %.3f @ %.3f | %.3f @ %.3f |\n", f.Name, len(c.names), grid[k].Aim, grid[k].MaxCorrection,
			grid[k].MinPrice, one.minutes, one.hours, other.minutes, other.hours)

		for i := range c.reactive {
			base.add(c.reactive[i])
			fitted.add(c.ahead[k][i])
			fixed.add(c.ahead[standard][i])
		}
	}

	fmt.Fprintf(&text, "| sum | | | %.3f @ %.3f | %.3f @ %.3f |\n\nWorse off with the default rules:\n", fitted.minutes/base.minutes,
		fitted.hours/base.hours, fixed.minutes/base.minutes, fixed.hours/base.hours)

	for _, f := range families.Recorded() {
		for _, v := range costs[f.Name].violations(standard) {
			fmt.Fprintf(&text, "- %s, %s\n", f.Name, v)
		}
	}

	text.WriteString("\nAll rules:\n")
	for k, v := range grid {
		fmt.Fprintf(&text, "- %g, %g, %g:", v.Aim, v.MaxCorrection, v.MinPrice)
		for _, f := range families.Recorded() {
			t := costs[f.Name].total(k)
			fmt.Fprintf(&text, " %s %.3f @ %.3f, %d worse off;", f.Name, t.minutes, t.hours, len(costs[f.Name].violations(k)))
		}

		text.WriteString("\n")
	}

	// b.Log would cut the table short.
	fmt.Printf("Scaling ahead, one family left out at a time; %s of wall time\n\n%s\n", time.Since(began).Round(time.Second), &text)
	for b.Loop() {
	}
}
