// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/scaling/ahead"
)

// window is the prediction window that an EffectiveHorizontalPodAutoscaler has where nothing is said: a forecast is published once in it.
const window = time.Hour

// Forecaster is a model that learns sample by sample.
type Forecaster interface {
	Observe(at time.Time, value float64)
	Forecast(horizon time.Duration) (forecast.Forecast, error)
}

// Ahead is Reactive with a forecast beside it, at the level that the workload's own past shows to be worth its replicas.
type Ahead struct {
	Reactive
	plant    scaling.Plant
	model    Forecaster
	follower *ahead.Follower
}

// NewAhead returns a scaler for a configuration.
func NewAhead(cfg Config, model Forecaster) (*Ahead, error) {
	plant := scaling.Plant{
		Capacity: cfg.Capacity, Target: cfg.Target, Lag: cfg.Startup + cfg.Delay + cfg.Sync, Stabilisation: cfg.Behavior.Down.Stabilisation,
	}
	follower, err := ahead.New(plant, window)
	if err != nil {
		return nil, err
	}
	return &Ahead{Reactive: Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance}, plant: plant, model: model, follower: follower}, nil
}

// Name implements Scaler.
func (*Ahead) Name() string { return "ehpa" }

// Choice is the level that it scales by now.
func (a *Ahead) Choice() scaling.Choice { return a.follower.Choice() }

// seasonal tells whether the forecast follows a season.
func (a *Ahead) seasonal() bool {
	return ahead.Budget(a.follower.Forecast()) == scaling.SeasonalBudget && a.follower.Forecast().Skill >= scaling.MinSkill
}

// Observe implements Scaler.
func (a *Ahead) Observe(at time.Time, load float64) {
	a.model.Observe(at, load)
	if a.follower.Due(at) {
		// Without a forecast the old one ages until its horizon ends; then there is none.
		f, err := a.model.Forecast(ahead.WindowsKept * window)
		if err != nil {
			f = forecast.Forecast{}
		}
		a.follower.Follow(f, at)
	}
	a.follower.Observe(at, load)
}

// Propose implements Scaler. The forecast comes to the HPA as an external metric with an average value, so it has the HPA's tolerance.
func (a *Ahead) Propose(v View) ([]scaling.Proposal, int32) {
	out := []scaling.Proposal{a.current(v)}
	choice, lead := a.follower.Choice(), ahead.Lead(a.plant)
	if !choice.Use {
		return out, 0
	}
	peak, ok := a.follower.Forecast().Max(choice.Level.Quantile, v.Now, v.Now.Add(lead))
	if !ok {
		return out, 0
	}
	one := scaling.Proposal{
		Metric: "prediction", Why: fmt.Sprintf("the %g quantile of the next %s peaks at %.4g", choice.Level.Quantile, lead, peak),
	}
	one.Replicas, one.Err = scaling.Total(a.plant.Aim(choice.Level, peak), a.plant.PerPod(), v.Current, a.Tolerance)
	return append(out, one), 0
}
