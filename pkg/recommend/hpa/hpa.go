// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hpa recommends a horizontal autoscaler for a workload whose use rises and falls with the hour of the day: how few
// and how many pods it keeps, and at which utilisation it acts. It must not know what an autoscaler is made of on the wire.
package hpa

import (
	"fmt"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/replicas"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Input is all that is known of a workload when it is decided on.
type Input struct {
	// Replicas is what the Replicas recommender needs. Its CPURequest is what a pod requests when the autoscaler acts: that
	// of today, or what it becomes together with the autoscaler.
	Replicas replicas.Input
	// RequestChanges tells that CPURequest is not today's.
	RequestChanges bool
	// PodCPU is the 99th percentile of the use of each container that runs for the life of a pod, added up, in cores; NaN
	// where it is not known.
	PodCPU float64
	// Existing is the autoscaler that Crane has made of the workload already, nil where there is none.
	Existing *Bounds
}

// Bounds are what an autoscaler keeps to.
type Bounds struct {
	Min, Max int32
	// Target is the CPU utilisation, in percent of the request, at which pods are added; 0 where there is none.
	Target int32
}

// Plan is an autoscaler.
type Plan struct {
	recommend.Plan
	// Bounds are set where Action is Create or Patch.
	Bounds Bounds
	// Forecast tells that it is to act on a forecast too.
	Forecast bool
}

// Reasons of plans that propose nothing.
const (
	ReasonLowUsage       = "LowUsage"
	ReasonFlat           = "FlatUsage"
	ReasonNotPredictable = "NotPredictable"
)

// Decide finds the bounds. Source of the formulas: gocrane's HPA recommender.
//
//	least pods   those of the Replicas recommender
//	target       ceil(100 x 1.15 x P99 of a pod's CPU / its request), between the settings' bounds
//	most pods    ceil(factor x P(cpu of all pods) / (request x target)), not less than the least
func Decide(in Input, s Settings) Plan {
	base := replicas.Decide(in.Replicas, s.Replicas)
	if base.State != recommend.Ready {
		return Plan{Plan: recommend.Plan{State: base.State, Reason: base.Reason, Description: base.Description}}
	}
	if base.Incomplete { // An autoscaler takes pods away, and its bounds are for the busiest hour of a week.
		return Plan{Plan: recommend.Plan{State: recommend.Learning, Description: base.Missing}}
	}
	use := in.Replicas.CPU.Between(in.Replicas.Now.Add(-s.Replicas.Window), in.Replicas.Now)
	evidence, why, reason := checkUsage(use, s)
	if reason != "" {
		return Plan{Plan: recommend.Plan{State: recommend.Ready, Action: recommend.NoAction, Reason: reason, Description: why, Evidence: evidence}}
	}
	if math.IsNaN(in.PodCPU) || in.PodCPU <= 0 {
		return Plan{Plan: recommend.Plan{State: recommend.NoData, Description: "No cpu use of single pods is known."}}
	}
	request := float64(in.Replicas.CPURequest) / 1000
	plan := Plan{Forecast: s.Predictable}
	usual := series.Quantile(use.Values, float64(s.Replicas.CPUPercentile))
	plan.Bounds.Min = base.Replicas
	plan.Bounds.Target = int32(min(max(math.Ceil(100*(1+float64(targetMargin))*in.PodCPU/request*(1-1e-9)), float64(s.MinTarget)), float64(s.MaxTarget)))
	most := math.Ceil(s.MaxFactor * usual / (request * float64(plan.Bounds.Target) / 100) * (1 - 1e-9))
	plan.Bounds.Max = int32(min(max(most, float64(base.Replicas)), math.MaxInt32))
	plan.State, plan.Action = recommend.Ready, recommend.Create
	if in.Existing != nil {
		plan.Action = recommend.Patch
		if *in.Existing == plan.Bounds {
			plan.Action = recommend.NoAction
		}
	}
	evidence = append(evidence, recommend.Evidence{Name: "p99 of cpu of a pod", Value: in.PodCPU, Unit: "cores"})
	plan.Evidence = slices.Concat(evidence, base.Evidence)
	plan.Description = describe(in, plan)
	return plan
}

// checkUsage tells whether the use is large and changeable enough for an autoscaler; the reason is empty where it is.
func checkUsage(use series.Series, s Settings) (evidence []recommend.Evidence, why, reason string) {
	most := use.Summarize().Max
	evidence = append(evidence, recommend.Evidence{Name: "largest cpu use", Value: most, Unit: "cores", Limit: &s.MinCPU})
	if most < s.MinCPU {
		return evidence, fmt.Sprintf("An autoscaler is not worth it: at most %.3g cores were used, and it takes %.3g.", most, s.MinCPU), ReasonLowUsage
	}
	busy, quiet := hourlyExtremes(use)
	times := busy / quiet
	evidence = append(evidence, recommend.Evidence{Name: "busiest to quietest hour of the day", Value: times, Limit: &s.Fluctuation})
	if !(times >= s.Fluctuation) {
		return evidence, fmt.Sprintf("An autoscaler is not worth it: the busiest hour of the day uses %.3g times what the quietest does, and it takes %.3g.",
			times, s.Fluctuation), ReasonFlat
	}
	if s.Predictable {
		alike := dailyCorrelation(use)
		least := minCorrelation
		evidence = append(evidence, recommend.Evidence{Name: "correlation with the day before", Value: alike, Limit: &least})
		if !(alike >= least) {
			return evidence, "The use does not repeat from day to day, so that a forecast of it would not help.", ReasonNotPredictable
		}
	}
	return evidence, "", ""
}

// minUsage stands for no use at all where hours are compared, in cores: gocrane's.
const minUsage = 0.1

// minCorrelation is the least correlation of the use with that of a day before for which a forecast is worth it.
const minCorrelation = 0.3

// hourlyExtremes are the medians of the use in the busiest and in the quietest hour of the day, in UTC: which hours these are
// does not matter.
func hourlyExtremes(use series.Series) (busiest, quietest float64) {
	var by [24][]float64
	for i, v := range use.Values {
		if !series.IsGap(v) {
			h := use.Time(i).UTC().Hour()
			by[h] = append(by[h], v)
		}
	}
	quietest = math.Inf(1)
	for _, values := range by {
		if m := series.Quantile(values, 0.5); !series.IsGap(m) {
			busiest, quietest = max(busiest, m), min(quietest, m)
		}
	}
	if quietest <= 0 {
		quietest = minUsage
	}
	return busiest, quietest
}

// dailyCorrelation is the correlation of the use with that of 24 hours before; NaN where there is not enough of both.
func dailyCorrelation(use series.Series) float64 {
	if use.Step <= 0 {
		return math.NaN()
	}
	lag := int(24 * time.Hour / use.Step)
	var n, sx, sy, sxx, syy, sxy float64
	for i := lag; i < len(use.Values); i++ {
		x, y := use.Values[i-lag], use.Values[i]
		if series.IsGap(x) || series.IsGap(y) {
			continue
		}
		n, sx, sy, sxx, syy, sxy = n+1, sx+x, sy+y, sxx+x*x, syy+y*y, sxy+x*y
	}
	return (n*sxy - sx*sy) / math.Sqrt((n*sxx-sx*sx)*(n*syy-sy*sy))
}

func describe(in Input, p Plan) string {
	how := "An autoscaler would keep"
	switch p.Action {
	case recommend.Patch:
		how = "The autoscaler should keep"
	case recommend.NoAction:
		how = "The autoscaler keeps, as it should,"
	case recommend.Create, recommend.Delete:
	}
	of := "the requested " + rightsize.FormatCPU(in.Replicas.CPURequest)
	if in.RequestChanges {
		of = rightsize.FormatCPU(in.Replicas.CPURequest) + ", which the pods should request and which changes together with it"
	}
	return fmt.Sprintf("%s %d to %d pods and add some at %d %% of %s.", how, p.Bounds.Min, p.Bounds.Max, p.Bounds.Target, of)
}
