// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/series"
)

// Plan is the set of scenarios: every series with each number of pods and each start-up time.
type Plan struct {
	// Pods is the number of pods that the 95th percentile of a series needs at the target.
	Pods []int
	// Startups are the times from a new replica to a ready pod.
	Startups []time.Duration
	// Target is the desired load of a pod as a fraction of its capacity.
	Target float64
	// Warmup is the part of a series that is observed before scoring.
	Warmup time.Duration
}

// DefaultPlan returns 5 and 50 pods, 60 s and 180 s, a target of 70 % and a week of warm-up.
func DefaultPlan() Plan {
	return Plan{Pods: []int{5, 50}, Startups: []time.Duration{time.Minute, 3 * time.Minute}, Target: 0.7, Warmup: 7 * 24 * time.Hour}
}

// Settings of the HPA in a replay. Sync period and stabilization window are the defaults of kube-controller-manager; the metric
// delay is metrics-server's resolution of 15 s and a window of the same length.
const (
	syncPeriod          = 15 * time.Second
	stabilizationWindow = 300 * time.Second
	metricDelay         = 30 * time.Second
	// maxReplicasFactor is the ratio of maxReplicas to the pods that the 95th percentile needs; it is high enough to limit no
	// scaler.
	maxReplicasFactor = 20
)

// Result is the score of one scaler on one series in one scenario.
type Result struct {
	Series string
	Scaler string
	Pods   int
	// Startup is the start-up time of a pod.
	Startup time.Duration
	Score
	// Seasonal reports whether the forecast followed a season at the end; Reason is that of the choice. Set for "ehpa" only.
	Seasonal bool
	Reason   string
}

// Compare replays every scaler over a series in every scenario of a plan.
func Compare(plan Plan, name string, load series.Series) ([]Result, error) {
	p95 := quantile(load.Values, 0.95)
	if !(p95 > 0) {
		return nil, fmt.Errorf("%s: its 95th percentile is %v, so nothing scales", name, p95)
	}
	foresight := newForecastCache(auto.NewModel(load.Step))
	var out []Result
	for _, pods := range plan.Pods {
		for _, startup := range plan.Startups {
			cfg := Config{
				Capacity: p95 / (float64(pods) * plan.Target), Target: plan.Target, Startup: startup, Delay: metricDelay, Sync: syncPeriod,
				Tolerance: scaling.DefaultTolerance(), Behavior: scaling.DefaultBehavior(stabilizationWindow),
				Bounds: scaling.Bounds{Min: 1, Max: int32(pods * maxReplicasFactor)}, Warmup: plan.Warmup,
			}
			ahead, err := NewPredictive(cfg, foresight.newForecaster())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			scalers := []Scaler{
				Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance}, ahead, NewCron(cfg, load.Start), NewOracle(cfg, load),
			}
			for _, s := range scalers {
				score, err := Run(cfg, load, s)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				r := Result{Series: name, Scaler: s.Name(), Pods: pods, Startup: startup, Score: score}
				if s == Scaler(ahead) {
					r.Seasonal, r.Reason = ahead.seasonal(), ahead.Choice().Reason
				}
				out = append(out, r)
			}
		}
	}
	return out, nil
}

func quantile(values []float64, q float64) float64 {
	usable := slices.DeleteFunc(slices.Clone(values), series.IsGap)
	if len(usable) == 0 {
		return 0
	}
	slices.Sort(usable)
	return series.QuantileSorted(usable, q)
}
