// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
	"crane.io/crane/test/families"
)

// hindsight holds what each of some requests would have cost on each scored day of a series, as shares of the need and of the samples.
type hindsight struct {
	gocrane Score
	cost    [][]float64 // by day, then by request
	above   [][]float64
}

// frontierPoint is the cost and the violation of a series.
type frontierPoint struct{ cost, violation float64 }

// newHindsight returns the results of 300 requests up to the highest usage, with the default reaction or without; nil for a series that is
// left out.
func newHindsight(s families.RecordedSeries, reacts bool) *hindsight {
	rules, err := Rules(units.CPU, gocraneRule)
	if err != nil {
		panic(err)
	}

	report, err := Run([]Named{Named(s)}, rules, units.CPU)
	if err != nil || len(report.Series) == 0 {
		return nil
	}

	out := &hindsight{gocrane: report.Series[0]}
	scored := s.Series.Between(firstDecision(s.Series), s.Series.End())

	total := scored.Summarize()
	const count = 300
	need := 0.0
	for _, part := range scored.Days() {
		sum := part.Summarize()
		need += float64(sum.Count) * sum.Max
		sorted := slices.DeleteFunc(slices.Clone(part.Values), series.IsGap)
		slices.Sort(sorted)

		curve := calibrate.NewCurve(part, *calibrate.DefaultSettings().Reaction)
		cost := make([]float64, count)
		above := make([]float64, count)
		for k := range count {
			request := 1.01 * total.Max * math.Pow(1000, float64(k)/(count-1)-1)
			within := sort.Search(len(sorted), func(i int) bool { return sorted[i] > request })
			cost[k] = float64(len(sorted)) * request
			above[k] = float64(len(sorted)-within) / float64(total.Count)

			if !reacts {
				continue
			}

			if left, added, ok := curve.At(request); ok {
				cost[k] += added
				above[k] = left / float64(total.Count)
			} else {
				cost[k] = math.Inf(1)
			}
		}

		out.cost, out.above = append(out.cost, cost), append(out.above, above)
	}

	for _, day := range out.cost {
		for k := range day {
			day[k] /= need
		}
	}

	return out
}

// points returns what can be reached in hindsight: with one request for all days, or with one for each day, chosen by a price for the time
// above it.
func (h *hindsight) points(daily bool) []frontierPoint {
	var out []frontierPoint
	if !daily {
		for k := range h.cost[0] {
			var p frontierPoint
			for d := range h.cost {
				p.cost += h.cost[d][k]
				p.violation += h.above[d][k]
			}

			out = append(out, p)
		}

		return out
	}

	for price := 1e-3; price < 1e5; price *= 1.2 {
		var p frontierPoint
		for d := range h.cost {
			best := 0
			for k := range h.cost[d] {
				if h.cost[d][k]+price*h.above[d][k] < h.cost[d][best]+price*h.above[d][best] {
					best = k
				}
			}

			p.cost += h.cost[d][best]
			p.violation += h.above[d][best]
		}

		out = append(out, p)
	}

	return out
}

// cheapest returns the least geometric mean of the costs of series whose mean violation is at most a share; NaN if none is.
func cheapest(all [][]frontierPoint, most float64) float64 {
	out := math.NaN()
	for price := 1e-3; price < 1e6; price *= 1.02 {
		logs, violation := 0.0, 0.0
		for _, points := range all {
			best := slices.MinFunc(points, func(a, b frontierPoint) int {
				return cmp.Compare(math.Log(a.cost)+price*a.violation, math.Log(b.cost)+price*b.violation)
			})
			logs += math.Log(best.cost) / float64(len(all))
			violation += best.violation / float64(len(all))
		}

		if violation <= most {
			return math.Exp(logs)
		}
	}

	return out
}

// BenchmarkFrontier prints, for each family, the least cost in hindsight at gocrane's time above the request, relative to gocrane's rule: of
// one request for each series, and of one for each day, without the reaction and with it.
func BenchmarkFrontier(b *testing.B) {
	for b.Loop() {
		for _, reacts := range []bool{false, true} {
			all := families.ScoreEach(b, func(_ string, s families.RecordedSeries) *hindsight { return newHindsight(s, reacts) })
			for _, f := range families.Recorded() {
				candidates := slices.DeleteFunc(all[f.Name], func(h *hindsight) bool { return h == nil })
				logs, violation := 0.0, 0.0
				for _, h := range candidates {
					logs += math.Log(h.gocrane.Cost) / float64(len(candidates))
					violation += h.gocrane.Violation / float64(len(candidates))
				}

				fmt.Printf("%s, reaction %v: %d series, gocrane %.2f at %.2f %%", f.Name, reacts, len(candidates), math.Exp(logs), 100*violation)
				for _, daily := range []bool{false, true} {
					points := make([][]frontierPoint, len(candidates))
					for i, h := range candidates {
						points[i] = h.points(daily)
					}
					fmt.Printf("; daily %v: %.2f of gocrane's cost", daily, cheapest(points, violation)/math.Exp(logs))
				}

				fmt.Println()
			}
		}
	}
}
