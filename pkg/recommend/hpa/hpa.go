// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hpa recommends a horizontal autoscaler for a workload whose usage varies with the hour of the day: its minimum and
// maximum number of pods and its target utilization. The API objects of autoscalers do not belong here.
package hpa

import (
	"fmt"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/replicas"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// Input describes one workload.
type Input struct {
	// Replicas is the input of the Replicas recommender. Its CPURequest is the request when the autoscaler acts: the current
	// one, or the one that changes together with the autoscaler.
	Replicas replicas.Input
	// RequestChanges is set if CPURequest differs from the current request.
	RequestChanges bool
	// PodCPU is the sum of the 99th percentiles of the usage of the containers of a pod, without init containers, in cores;
	// NaN if it is unknown.
	PodCPU float64
	// Existing is the autoscaler that Crane created for the workload; nil if there is none.
	Existing *Bounds
}

// Bounds are the settings of an autoscaler.
type Bounds struct {
	Min, Max int32
	// Target is the CPU utilization, in percent of the request, at which pods are added; 0 if there is none.
	Target int32
}

// Plan is a recommended autoscaler.
type Plan struct {
	recommend.Plan
	// Bounds are set if Action is Create or Patch.
	Bounds Bounds
	// Forecast is set if the autoscaler should also act on a forecast.
	Forecast bool
}

// Reasons of plans that propose nothing.
const (
	ReasonLowUsage       = "LowUsage"
	ReasonFlat           = "FlatUsage"
	ReasonNotPredictable = "NotPredictable"
)

// Decide computes the bounds. The formulas are those of gocrane's HPA recommender:
//
//	min pods     those of the Replicas recommender
//	target       ceil(100 x 1.15 x P99 of a pod's CPU / its request), between the settings' bounds
//	max pods     ceil(factor x P(cpu of all pods) / (request x target)), not less than the minimum
func Decide(in Input, s Settings) Plan {
	base := replicas.Decide(in.Replicas, s.Replicas)
	if base.State != recommend.Ready {
		return Plan{Plan: recommend.Plan{State: base.State, Reason: base.Reason, Description: base.Description}}
	}
	if base.Incomplete { // An autoscaler removes pods, and its bounds must suit the busiest hour of a week.
		return Plan{Plan: recommend.Plan{State: recommend.Learning, Description: base.Missing}}
	}

	use := in.Replicas.CPU.Between(in.Replicas.Now.Add(-s.Replicas.Window), in.Replicas.Now)
	evidence, why, reason := checkUsage(use, s)
	if reason != "" {
		return Plan{Plan: recommend.Plan{
			State:       recommend.Ready,
			Action:      recommend.NoAction,
			Reason:      reason,
			Description: why,
			Evidence:    evidence,
		}}
	}

	if math.IsNaN(in.PodCPU) || in.PodCPU <= 0 {
		return Plan{Plan: recommend.Plan{State: recommend.NoData, Description: "No cpu use of single pods is known."}}
	}

	request := float64(in.Replicas.CPURequest) / 1000
	plan := Plan{Forecast: s.Predictable}
	usual := series.Quantile(use.Values, float64(s.Replicas.CPUPercentile))
	plan.Bounds.Min = base.Replicas
	plan.Bounds.Target = int32(min(max(math.Ceil(100*(1+float64(targetMargin))*in.PodCPU/request*(1-1e-9)), float64(s.MinTarget)), float64(s.MaxTarget)))

	maxPods := math.Ceil(s.MaxFactor * usual / (request * float64(plan.Bounds.Target) / 100) * (1 - 1e-9))
	plan.Bounds.Max = int32(min(max(maxPods, float64(base.Replicas)), math.MaxInt32))

	plan.State = recommend.Ready
	plan.Action = recommend.Create
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

// checkUsage reports whether the usage is large and variable enough for an autoscaler; if it is, the reason is empty.
func checkUsage(use series.Series, s Settings) (evidence []recommend.Evidence, why, reason string) {
	peak := use.Summarize().Max
	evidence = append(evidence, recommend.Evidence{
		Name:  "largest cpu use",
		Value: peak,
		Unit:  "cores",
		Limit: &s.MinCPU,
	})

	// A small workload gains little from an autoscaler, and a flat one nothing.
	if peak < s.MinCPU {
		return evidence, fmt.Sprintf("An autoscaler is not worth it: at most %.3g cores were used, and it takes %.3g.", peak, s.MinCPU), ReasonLowUsage
	}

	busy, quiet := hourlyExtremes(use)
	ratio := busy / quiet
	evidence = append(evidence, recommend.Evidence{Name: "busiest to quietest hour of the day", Value: ratio, Limit: &s.Fluctuation})
	if !(ratio >= s.Fluctuation) {
		return evidence, fmt.Sprintf("An autoscaler is not worth it: the busiest hour of the day uses %.3g times what the quietest does, and it takes %.3g.",
			ratio, s.Fluctuation), ReasonFlat
	}

	if s.Predictable {
		correlation := dailyCorrelation(use)
		minimum := minCorrelation
		evidence = append(evidence, recommend.Evidence{Name: "correlation with the day before", Value: correlation, Limit: &minimum})
		if !(correlation >= minimum) {
			return evidence, "The use does not repeat from day to day, so that a forecast of it would not help.", ReasonNotPredictable
		}
	}

	return evidence, "", ""
}

// minUsage replaces a usage of zero when hours are compared, in cores: gocrane's value.
const minUsage = 0.1

// minCorrelation is the correlation of the usage with that of the day before from which a forecast is useful.
const minCorrelation = 0.3

// hourlyExtremes returns the medians of the usage in the busiest and in the quietest hour of the day, in UTC.
func hourlyExtremes(use series.Series) (busiest, quietest float64) {
	var byHour [24][]float64
	for i, v := range use.Values {
		if !series.IsGap(v) {
			h := use.Time(i).UTC().Hour()
			byHour[h] = append(byHour[h], v)
		}
	}

	quietest = math.Inf(1)
	for _, values := range byHour {
		if m := series.Quantile(values, 0.5); !series.IsGap(m) {
			busiest = max(busiest, m)
			quietest = min(quietest, m)
		}
	}

	if quietest <= 0 {
		quietest = minUsage
	}

	return busiest, quietest
}

// dailyCorrelation returns the correlation of the usage with that of 24 hours before; NaN if there is too little of both.
func dailyCorrelation(use series.Series) float64 {
	if use.Step <= 0 {
		return math.NaN()
	}

	lag := int(24 * time.Hour / use.Step)
	var n, sx, sy, sxx, syy, sxy float64
	for i := lag; i < len(use.Values); i++ {
		x := use.Values[i-lag]
		y := use.Values[i]
		if series.IsGap(x) || series.IsGap(y) {
			continue
		}

		n++
		sx += x
		sy += y
		sxx += x * x
		syy += y * y
		sxy += x * y
	}

	return (n*sxy - sx*sy) / math.Sqrt((n*sxx-sx*sx)*(n*syy-sy*sy))
}

func describe(in Input, p Plan) string {
	subject := "An autoscaler would keep"
	switch p.Action {
	case recommend.Patch:
		subject = "The autoscaler should keep"
	case recommend.NoAction:
		subject = "The autoscaler keeps, as it should,"
	case recommend.Create, recommend.Delete:
	}

	base := "the requested " + units.FormatCPU(in.Replicas.CPURequest)
	if in.RequestChanges {
		base = units.FormatCPU(in.Replicas.CPURequest) + ", which the pods should request and which changes together with it"
	}

	return fmt.Sprintf("%s %d to %d pods and add some at %d %% of %s.", subject, p.Bounds.Min, p.Bounds.Max, p.Bounds.Target, base)
}

// Settings are those of gocrane, with its keys and defaults, and those of the Replicas recommender, whose number of pods is
// the minimum of the autoscaler.
type Settings struct {
	Replicas replicas.Settings
	// Predictable requests a forecast in the autoscaler and requires usage that repeats daily (predictable, false).
	Predictable bool
	// KeepMetrics keeps the metrics other than CPU of an existing autoscaler (reference-hpa, true).
	KeepMetrics bool
	// MinCPU is the number of cores that the workload must have used at some time (min-cpu-usage-threshold, 1).
	MinCPU float64
	// Fluctuation is the required ratio of the busiest to the quietest hour of the day (fluctuation-threshold, 1.5; below 1 accepts any).
	Fluctuation float64
	// MinTarget and MaxTarget bound the target utilization in percent (min-cpu-target-utilization, 30, and
	// max-cpu-target-utilization, 75).
	MinTarget, MaxTarget int32
	// MaxFactor is the factor of its usual usage to which the workload must be able to grow (max-replicas-factor, 3).
	MaxFactor float64
}

// ParseSettings parses the settings of the recommender. Unknown keys are errors.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{
		Replicas:    replicas.ReadSettings(r),
		Predictable: r.Flag("predictable", false),
		KeepMetrics: r.Flag("reference-hpa", true),
		MinCPU:      r.Number("min-cpu-usage-threshold", 1, 0, 1e6),
		Fluctuation: r.Number("fluctuation-threshold", 1.5, 0, 1e6),
		MinTarget:   int32(r.Number("min-cpu-target-utilization", 30, 1, 100)),
		MaxTarget:   int32(r.Number("max-cpu-target-utilization", 75, 1, 100)),
		MaxFactor:   r.Number("max-replicas-factor", 3, 1, 1000),
	}

	err := r.Err()
	if err == nil && s.MinTarget > s.MaxTarget {
		err = &settings.FieldError{
			Path: "min-cpu-target-utilization", Value: config["min-cpu-target-utilization"], Allowed: "must be at most max-cpu-target-utilization",
		}
	}

	return s, err
}

// targetMargin is added to the usage of a pod for the target utilization: gocrane's value.
const targetMargin = units.Ratio(0.15)
