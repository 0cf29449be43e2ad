// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// CranePrefix is the prefix of Crane's own policies in a report.
const CranePrefix = "crane-"

// Rules returns the rules of the given names for a resource, or all of them: the built-in policies as crane-default,
// crane-latency-sensitive, crane-batch and crane-calibrated-constant, and the peers gocrane, vpa, krr-p95 and krr-p99; for CPU also
// crane-calibrated and crane-calibrated-adopted. The error for an unknown name lists the known ones.
func Rules(resource units.Resource, names ...string) ([]Rule, error) {
	if resource != units.CPU && resource != units.Memory {
		return nil, fmt.Errorf("unknown resource %q: want %s or %s", resource, units.CPU, units.Memory)
	}

	var all []Rule
	for _, name := range rightsize.PolicyNames() {
		policy, err := rightsize.PolicyByName(name)
		if err != nil {
			return nil, err
		}

		all = append(all, OfPolicy(policy, resource))
	}

	all = append(all, peers(resource)...)
	if resource == units.CPU {
		all = append(all, OfCalibration(Calibrated, calibrate.DefaultSettings()), OfAdoption(CalibratedAdopted, calibrate.DefaultTarget))
	}

	if len(names) == 0 {
		return all, nil
	}

	ruleNames := make([]string, len(all))
	for i, r := range all {
		ruleNames[i] = r.Name
	}

	var chosen []Rule
	for _, name := range names {
		i := slices.Index(ruleNames, name)
		if i < 0 {
			return nil, fmt.Errorf("unknown policy %q: want one of %s", name, strings.Join(ruleNames, ", "))
		}

		chosen = append(chosen, all[i])
	}

	return chosen, nil
}

// OfPolicy returns the rule of a policy: its need without target utilization, rounding, floor and ceiling. The limit is the
// request, or above it with the limit mode headroom.
func OfPolicy(p rightsize.Policy, resource units.Resource) Rule {
	name := CranePrefix + p.Name
	if p.Name == rightsize.CalibratedPolicy {
		name = CalibratedConstant
	}

	if resource == units.Memory {
		return Rule{Name: name, Decide: func(past History) Sizes {
			need := p.Memory.Need(past.Days(p.Memory.Window), past.Now)
			limit := need
			if p.Memory.Limit.Mode == rightsize.LimitHeadroom {
				limit *= 1 + float64(p.Memory.Limit.Headroom)
			}

			return Sizes{Request: need, Limit: limit}
		}}
	}

	return Rule{Name: name, Decide: func(past History) Sizes {
		return Sizes{Request: p.CPU.Need(past.Days(p.CPU.Window), past.Now)}
	}}
}

// peers returns the formulas of other tools on raw samples; rightsize.Peers has the same on sketches.
func peers(resource units.Resource) []Rule {
	rule := func(name string, needOf func(History) float64) Rule {
		return Rule{Name: name, Decide: func(past History) Sizes {
			need := needOf(past)
			return Sizes{Request: need, Limit: need}
		}}
	}

	quantile := func(days int, q, margin float64) func(History) float64 {
		return func(past History) float64 {
			recent := past.Samples.Between(past.Now.Add(-time.Duration(days)*day), past.Now)

			// The maximum needs no sorting.
			if sum := recent.Summarize(); q == 1 && sum.Count > 0 {
				return sum.Max * (1 + margin)
			}

			return series.Quantile(recent.Values, q) * (1 + margin)
		}
	}

	if resource == units.Memory {
		return []Rule{
			rule("gocrane", quantile(7, 0.99, 0.15)), rule("vpa", vpaMemory),
			rule("krr-p95", quantile(14, 1, 0.15)), rule("krr-p99", quantile(14, 1, 0.15)),
		}
	}

	return []Rule{
		rule("gocrane", quantile(7, 0.99, 0.15)), rule("vpa", vpaCPU),
		rule("krr-p95", quantile(14, 0.95, 0)), rule("krr-p99", quantile(14, 0.99, 0)),
	}
}

const (
	vpaQuantile = 0.90
	vpaMargin   = 0.15
	vpaHalfLife = day
	// vpaPeaks is the number of daily memory peaks that VPA keeps.
	vpaPeaks = 8
)

type weightedValue struct{ value, weight float64 }

// vpaCPU returns the p90 of all samples, whose weight halves every 24 hours, plus 15 %.
func vpaCPU(past History) float64 {
	s := past.Samples
	samples := make([]weightedValue, 0, len(s.Values))
	for i, v := range s.Values {
		if !series.IsGap(v) {
			age := past.Now.Sub(s.Time(i))
			samples = append(samples, weightedValue{v, math.Exp2(-float64(age) / float64(vpaHalfLife))})
		}
	}

	return weightedQuantile(samples, vpaQuantile) * (1 + vpaMargin)
}

// vpaMemory returns the same of the largest sample of each of the last eight days.
func vpaMemory(past History) float64 {
	var peaks []weightedValue
	for date, part := range past.Samples.Between(past.Now.Add(-vpaPeaks*day), past.Now).Days() {
		if sum := part.Summarize(); sum.Count > 0 {
			peaks = append(peaks, weightedValue{sum.Max, math.Exp2(-float64(past.Now.Sub(date.End())) / float64(vpaHalfLife))})
		}
	}

	return weightedQuantile(peaks, vpaQuantile) * (1 + vpaMargin)
}

// weightedQuantile returns the smallest value that, with those below it, has the share q of the weight; NaN without values.
func weightedQuantile(values []weightedValue, q float64) float64 {
	slices.SortFunc(values, func(a, b weightedValue) int { return cmp.Compare(a.value, b.value) })
	total := 0.0
	sum := 0.0

	for _, v := range values {
		total += v.weight
	}

	for _, v := range values {
		sum += v.weight
		if sum >= q*total*(1-1e-12) {
			return v.value
		}
	}

	return math.NaN()
}
