// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/scaling/forecastvalue"
)

// forecastWindow is the default prediction window of an EffectiveHorizontalPodAutoscaler: a forecast is published once in it.
const forecastWindow = time.Hour

// Forecaster is an online forecasting model.
type Forecaster interface {
	Observe(at time.Time, value float64)
	Forecast(horizon time.Duration) (forecast.Forecast, error)
}

// Predictive is a Reactive scaler that also scales by a forecast, at the level that pays off on the history of the workload.
type Predictive struct {
	Reactive
	plant     scaling.Plant
	model     Forecaster
	evaluator *forecastvalue.Evaluator
}

// NewPredictive returns a scaler for a configuration.
func NewPredictive(cfg Config, model Forecaster) (*Predictive, error) {
	plant := scaling.Plant{
		Capacity: cfg.Capacity, Target: cfg.Target, Lag: cfg.Startup + cfg.Delay + cfg.Sync, StabilizationWindow: cfg.Behavior.Down.StabilizationWindow,
	}
	follower, err := forecastvalue.New(plant, forecastWindow)
	if err != nil {
		return nil, err
	}
	return &Predictive{Reactive: Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance}, plant: plant, model: model, evaluator: follower}, nil
}

// Name implements Scaler.
func (*Predictive) Name() string { return "ehpa" }

// Choice returns the current choice of the ledger.
func (a *Predictive) Choice() scaling.Choice { return a.evaluator.Choice() }

// seasonal reports whether the forecast follows a season.
func (a *Predictive) seasonal() bool {
	return forecastvalue.Budget(a.evaluator.Forecast()) == scaling.SeasonalBudget && a.evaluator.Forecast().Skill >= scaling.MinSkill
}

// Observe implements Scaler.
func (a *Predictive) Observe(at time.Time, load float64) {
	a.model.Observe(at, load)
	if a.evaluator.ForecastDue(at) {
		// After an error the previous forecast is used until it ends.
		f, err := a.model.Forecast(forecastvalue.ForecastWindows * forecastWindow)
		if err != nil {
			f = forecast.Forecast{}
		}
		a.evaluator.SetForecast(f, at)
	}
	a.evaluator.Observe(at, load)
}

// Propose implements Scaler. Like in a cluster, the HPA reads the forecast as an external metric with an average value, to which its
// tolerance applies.
func (a *Predictive) Propose(v ScalerInput) ([]scaling.Proposal, int32) {
	out := []scaling.Proposal{a.reactiveProposal(v)}
	choice, lead := a.evaluator.Choice(), forecastvalue.Lead(a.plant)
	if !choice.Use {
		return out, 0
	}
	peak, ok := a.evaluator.Forecast().Max(choice.Level.Quantile, v.Now, v.Now.Add(lead))
	if !ok {
		return out, 0
	}
	one := scaling.Proposal{
		Metric: "prediction", Reason: fmt.Sprintf("the %g quantile of the next %s peaks at %.4g", choice.Level.Quantile, lead, peak),
	}
	one.Replicas, one.Err = scaling.ReplicasForTotal(a.plant.EquivalentLoad(choice.Level, peak), a.plant.TargetPerPod(), v.Current, a.Tolerance)
	return append(out, one), 0
}
