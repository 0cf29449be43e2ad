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

// forecastWindow is the prediction window that an EffectiveHorizontalPodAutoscaler has where nothing is said: a forecast is published once in it.
const forecastWindow = time.Hour

// Forecaster is a model that learns sample by sample.
type Forecaster interface {
	Observe(at time.Time, value float64)
	Forecast(horizon time.Duration) (forecast.Forecast, error)
}

// Predictive is Reactive with a forecast beside it, at the level that the workload's own past shows to be worth its replicas.
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

// Choice is the level that it scales by now.
func (a *Predictive) Choice() scaling.Choice { return a.evaluator.Choice() }

// seasonal tells whether the forecast follows a season.
func (a *Predictive) seasonal() bool {
	return forecastvalue.Budget(a.evaluator.Forecast()) == scaling.SeasonalBudget && a.evaluator.Forecast().Skill >= scaling.MinSkill
}

// Observe implements Scaler.
func (a *Predictive) Observe(at time.Time, load float64) {
	a.model.Observe(at, load)
	if a.evaluator.ForecastDue(at) {
		// Without a forecast the old one ages until its horizon ends; then there is none.
		f, err := a.model.Forecast(forecastvalue.ForecastWindows * forecastWindow)
		if err != nil {
			f = forecast.Forecast{}
		}
		a.evaluator.SetForecast(f, at)
	}
	a.evaluator.Observe(at, load)
}

// Propose implements Scaler. The forecast comes to the HPA as an external metric with an average value, so it has the HPA's tolerance.
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
