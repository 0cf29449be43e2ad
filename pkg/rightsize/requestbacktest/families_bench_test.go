// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
	"crane.io/crane/test/families"
)

// gocraneRule is the rule that all are compared with: p99 of 7 days and 15 %.
const gocraneRule = "gocrane"

// targets are those that users choose from in the tables.
func targets() []units.Ratio { return []units.Ratio{0.0025, 0.005, 0.01} }

// variant is one choice of the parameters.
type variant struct {
	name     string
	settings calibrate.Settings
}

func (v variant) rule(target units.Ratio) Rule {
	v.settings.Target = target
	return OfCalibration(fmt.Sprintf("%s %g %%", v.name, 100*float64(target)), v.settings)
}

// variants is the grid that parameters are chosen from, for requests of a block. The first is the default.
func variants(block time.Duration) []variant {
	base := calibrate.DefaultSettings()
	if block == day {
		reacting := base
		base = calibrate.ConstantSettings()
		base.Reaction, base.Newest = reacting.Reaction, reacting.Newest
	}

	out := []variant{{"calibrated", base}}
	for _, q := range []units.Ratio{0.95, 0.98, 0.99} {
		for _, hold := range []time.Duration{30 * time.Minute, time.Hour} {
			for _, headroom := range []float64{1.2, 1.3, 1.4} {
				for _, newest := range []int{0, 3} {
					s := base
					s.Quantile = q
					s.Newest = newest
					s.Reaction = &calibrate.Reaction{Headroom: headroom, Hold: hold, Delay: s.Reaction.Delay}
					out = append(out, variant{fmt.Sprintf("p%g, newest %d days, hold %v, headroom %g", 100*float64(q), newest, hold, headroom), s})
				}
			}
		}
	}

	return out
}

// scoreFamilies runs the rules on all series of all families.
func scoreFamilies(b *testing.B, rules func() []Rule) map[string]Report {
	b.Helper()

	out := map[string]Report{}
	for name, scores := range families.ScoreEach(b, func(family string, s families.RecordedSeries) Report {
		report, err := Run([]Named{Named(s)}, rules(), units.CPU)
		if err != nil {
			b.Logf("%s: %v", family, err)
		}

		return report
	}) {
		out[name] = joined(scores)
	}

	return out
}

// joined returns one report of those of single series.
func joined(all []Report) Report {
	var out Report
	var means []meanScore
	for _, r := range all {
		out.LeftOut = append(out.LeftOut, r.LeftOut...)
		out.Series = append(out.Series, r.Series...)

		if means == nil {
			means = make([]meanScore, len(r.Series))
		}

		for i, s := range r.Series {
			means[i].add(s)
		}
	}

	for _, m := range means {
		out.Mean = append(out.Mean, m.unweighted(m.scores[0].Policy))
		out.Weighted = append(out.Weighted, m.weighted(m.scores[0].Policy))
	}

	return out
}

// above returns the number of series of a rule that exceed a share of the time.
func (r Report) above(rule int, share float64) (n, of int) {
	for i := rule; i < len(r.Series); i += len(r.Mean) {
		of++
		if r.Series[i].Violation > share {
			n++
		}
	}

	return n, of
}

// loss is what a choice costs on a family, summed over the targets: the logarithm of the cost, and a price for series that exceed
// twice the target and for a longest stretch above ten minutes. rule is that of the first target.
func loss(r Report, rule int) float64 {
	sum := 0.0
	for i, target := range targets() {
		n, total := r.above(rule+i, 2*float64(target))
		sum += math.Log(r.Mean[rule+i].Cost) + 5*max(0, float64(n)/float64(total)-0.03) + math.Log(max(1, r.Mean[rule+i].LongestAbove/10))
	}

	return sum
}

// chosen returns the variant with the least loss on the families of other groups.
func chosen(grid []variant, scores map[string]Report, group string) int {
	return families.LeastLoss(len(grid), group, func(family string, k int) float64 { return loss(scores[family], k*len(targets())) })
}

// BenchmarkLeaveOneFamilyOut prints the scores of each family with the parameters chosen on the other families, beside the default: for
// requests by block, and for one request a day, both with the reaction.
func BenchmarkLeaveOneFamilyOut(b *testing.B) {
	for b.Loop() {
		for _, block := range []time.Duration{calibrate.DefaultSettings().Block, day} {
			fmt.Printf("requests of %v\n", block)
			leaveOneFamilyOut(b, variants(block))
		}
	}
}

func leaveOneFamilyOut(b *testing.B, grid []variant) {
	b.Helper()

	scores := scoreFamilies(b, func() []Rule {
		var rules []Rule
		for _, v := range grid {
			for _, target := range targets() {
				rules = append(rules, v.rule(target))
			}
		}

		return rules
	})

	for _, f := range families.Recorded() {
		r := scores[f.Name]
		for _, k := range []int{chosen(grid, scores, f.Group), 0} {
			fmt.Printf("%s: %s\n", f.Name, grid[k].name)
			for i, target := range targets() {
				at := k*len(targets()) + i
				n, total := r.above(at, 2*float64(target))
				fmt.Printf("  %g %%: cost %.3f, %.2f %%, %d of %d above twice the target, longest %.0f min, %.1f changes a day\n", 100*float64(target),
					r.Mean[at].Cost, 100*r.Mean[at].Violation, n, total, r.Mean[at].LongestAbove, r.Mean[at].Changes)
			}
		}
	}
}

// BenchmarkFamilies prints the scores of the default parameters at several targets, of the constant without a reaction, and of other rules.
func BenchmarkFamilies(b *testing.B) {
	for b.Loop() {
		scores := scoreFamilies(b, familyRules)
		for _, f := range families.Recorded() {
			r := scores[f.Name]
			fmt.Printf("%s: %d series; left out %v\n", f.Name, len(r.Series)/len(r.Mean), r.LeftOut)

			gocrane := r.Mean[slices.IndexFunc(r.Mean, func(s Score) bool { return s.Policy == gocraneRule })]
			for k, m := range r.Mean {
				w := r.Weighted[k]
				var counts []string
				for _, share := range []float64{0.002, 0.005, 0.01, 0.02} {
					n, total := r.above(k, share)
					counts = append(counts, fmt.Sprintf("%d of %d", n, total))
				}

				fmt.Printf("  %-30s cost %.3f (%.3f of gocrane's), %.2f %% = %.1f min a day, longest %.0f min, %.1f changes a day; "+
					"by size: %.3f, %.2f %%; above .2, .5, 1, 2 %%: %s\n", m.Policy, m.Cost, m.Cost/gocrane.Cost, 100*m.Violation, m.MinutesAbove,
					m.LongestAbove, m.Changes, w.Cost, 100*w.Violation, strings.Join(counts, ", "))
			}
		}
	}
}

// familyRules are those of the table of families.
func familyRules() []Rule {
	rules, err := Rules(units.CPU, gocraneRule, CranePrefix+"default")
	if err != nil {
		panic(err)
	}

	constant := variant{"constant, no reaction,", calibrate.ConstantSettings()}
	for _, v := range []variant{variants(3 * time.Hour)[0], constant} {
		for _, target := range targets() {
			rules = append(rules, v.rule(target))
		}
	}

	replayed := variants(day)[0]
	replayed.name = "constant with reaction, replayed with it from samples,"
	for _, target := range targets() {
		rules = append(rules, OfAdoption(fmt.Sprintf("adopted: constant with reaction, replayed with it from sketches, %g %%", 100*float64(target)), target), replayed.rule(target))
	}

	rules = append(rules, OfAdoption("adopted, 0.75 %", 0.0075))
	lowest := variants(3 * time.Hour)[0]
	lowest.name = "lowest"

	return append(rules, lowest.rule(0.001))
}
