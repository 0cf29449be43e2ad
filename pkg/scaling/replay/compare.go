// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
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
	// Budget is the maximum of the additional replica hours of all series, as a fraction of those of the HPA alone.
	Budget float64
}

// DefaultPlan returns 5 and 50 pods, 60 s and 180 s, a target of 70 %, a week of warm-up and the default budget.
func DefaultPlan() Plan {
	return Plan{
		Pods:     []int{5, 50},
		Startups: []time.Duration{time.Minute, 3 * time.Minute},
		Target:   0.7,
		Warmup:   7 * 24 * time.Hour,
		Budget:   scaling.DefaultBudget,
	}
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
	// Choice is the last choice of "ehpa"; zero for other scalers.
	Choice scaling.Choice
}

// Named is a series with the name of its workload.
type Named struct {
	Name   string
	Series series.Series
}

// Compare replays every scaler over all series in every scenario of a plan. The series of a scenario are one fleet, which shares the
// budget. It returns the reasons why series were skipped beside the results.
func Compare(plan Plan, all []Named) (results []Result, skipped []error) {
	workloads, skipped := usableWorkloads(plan, all)
	for _, pods := range plan.Pods {
		for _, startup := range plan.Startups {
			scenario, err := compareScenario(plan, pods, startup, workloads)
			if err != nil {
				return nil, append(skipped, err)
			}

			results = append(results, scenario...)
		}
	}

	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(a.order(all), b.order(all)) })
	return results, skipped
}

// order returns the position of the result's series.
func (r Result) order(all []Named) int {
	return slices.IndexFunc(all, func(n Named) bool { return n.Name == r.Series })
}

// workload is a series that can be replayed.
type workload struct {
	Named
	p95 float64
	// foresight shares the forecasts of the series between scenarios.
	foresight *forecastCache
}

// usableWorkloads returns the series that are long enough and not idle, and errors for the others.
func usableWorkloads(plan Plan, all []Named) (out []workload, skipped []error) {
	for _, n := range all {
		p95 := quantile(n.Series.Values, 0.95)
		switch {
		case !(p95 > 0):
			skipped = append(skipped, fmt.Errorf("%s: its 95th percentile is %v, so nothing scales", n.Name, p95))
		case n.Series.Step <= 0 || n.Series.End().Sub(n.Series.Start) <= plan.Warmup:
			skipped = append(skipped, fmt.Errorf("%s: the series is shorter than %s", n.Name, units.FormatDuration(plan.Warmup)))
		default:
			out = append(out, workload{n, p95, newForecastCache(auto.NewModel(n.Series.Step))})
		}
	}

	return out, skipped
}

// config returns the configuration of a replay of a series in a scenario.
func (p Plan) config(p95 float64, pods int, startup time.Duration) Config {
	return Config{
		Capacity:  p95 / (float64(pods) * p.Target),
		Target:    p.Target,
		Startup:   startup,
		Delay:     metricDelay,
		Sync:      syncPeriod,
		Tolerance: scaling.DefaultTolerance(),
		Behavior:  scaling.DefaultBehavior(stabilizationWindow),
		Bounds:    scaling.Bounds{Min: 1, Max: int32(pods * maxReplicasFactor)},
		Warmup:    p.Warmup,
	}
}

// compareScenario replays every scaler over all series with a number of pods and a start-up time.
func compareScenario(plan Plan, pods int, startup time.Duration, all []workload) ([]Result, error) {
	fleet, err := scaling.NewFleet(plan.Budget)
	if err != nil {
		return nil, err
	}

	var simulations []*simulation
	var out []Result
	for _, w := range all {
		cfg := plan.config(w.p95, pods, startup)
		scalers, err := w.scalers(cfg, fleet)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}

		for _, s := range scalers {
			sim, err := newSimulation(cfg, w.Series, s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.Name, err)
			}

			simulations = append(simulations, sim)
			out = append(out, Result{
				Series:  w.Name,
				Scaler:  s.Name(),
				Pods:    pods,
				Startup: startup,
			})
		}
	}

	// All series advance together, since they share the budget of the fleet.
	runTogether(simulations)

	for i, sim := range simulations {
		out[i].Score = sim.score
		if ahead, ok := sim.scaler.(*Predictive); ok {
			out[i].Choice = ahead.Choice()
		}
	}

	return out, nil
}

// scalers returns the scalers that are compared; the first is the reference.
func (w workload) scalers(cfg Config, fleet *scaling.Fleet) ([]Scaler, error) {
	ahead, err := NewPredictive(cfg, w.foresight.newForecaster(), fleet, w.Name)
	if err != nil {
		return nil, err
	}

	// The plain plan pays nothing, so its fleet has no other workload.
	ownFleet, err := scaling.NewFleet(scaling.DefaultBudget)
	if err != nil {
		return nil, err
	}

	plain, err := NewPredictive(cfg, w.foresight.newForecaster(), ownFleet, w.Name)
	if err != nil {
		return nil, err
	}

	return []Scaler{
		Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance}, ahead, Plain{plain}, NewLowTarget(cfg), NewCron(cfg, w.Series.Start), NewOracle(cfg, w.Series),
	}, nil
}

func quantile(values []float64, q float64) float64 {
	usable := slices.DeleteFunc(slices.Clone(values), series.IsGap)
	if len(usable) == 0 {
		return 0
	}

	slices.Sort(usable)
	return series.QuantileSorted(usable, q)
}
