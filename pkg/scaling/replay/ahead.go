// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/scaling"
)

const (
	// refresh is how often a forecast is made anew, and a level chosen.
	refresh = 15 * time.Minute
	// horizon is how far it reaches.
	horizon = time.Hour
	// reserve is how much sooner than the lag load is looked for: a forecast is some minutes early or late.
	reserve = 75 * time.Second
)

// Forecaster is a model that learns sample by sample.
type Forecaster interface {
	Observe(at time.Time, value float64)
	Forecast(horizon time.Duration) (forecast.Forecast, error)
}

// Ahead is Reactive with a forecast beside it, at the level that the workload's own past shows to be worth its replicas.
type Ahead struct {
	Reactive
	capacity float64
	lead     time.Duration
	model    Forecaster
	ledger   *scaling.Ledger

	forecast forecast.Forecast
	made     time.Time
	choice   scaling.Choice
}

// NewAhead returns a scaler for a configuration.
func NewAhead(cfg Config, model Forecaster) (*Ahead, error) {
	lag := cfg.Startup + cfg.Delay + cfg.Sync
	ledger, err := scaling.NewLedger(scaling.Plant{
		Capacity: cfg.Capacity, Target: cfg.Target, Lag: lag, Stabilisation: cfg.Behavior.Down.Stabilisation,
	})
	if err != nil {
		return nil, fmt.Errorf("keeping account of the forecast: %w", err)
	}
	return &Ahead{
		Reactive: Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance},
		capacity: cfg.Capacity, lead: lag + reserve, model: model, ledger: ledger,
	}, nil
}

// Name implements Scaler.
func (*Ahead) Name() string { return "ehpa" }

// Choice is the level that it scales by now.
func (a *Ahead) Choice() scaling.Choice { return a.choice }

// Observe implements Scaler.
func (a *Ahead) Observe(at time.Time, load float64) {
	a.model.Observe(at, load)
	if at.Sub(a.made) >= refresh {
		// Without a forecast the old one ages until its horizon ends; then there is none.
		if f, err := a.model.Forecast(horizon); err == nil {
			a.forecast = f
		}
		a.made = at
		a.choice = a.ledger.Choose(budget(a.forecast))
	}
	a.ledger.Observe(at, load, func(quantile float64) (float64, bool) {
		return a.forecast.Max(quantile, at, at.Add(a.lead))
	})
}

func budget(f forecast.Forecast) float64 {
	if f.Period > 0 && f.Skill >= scaling.MinSkill {
		return scaling.SeasonalBudget
	}
	return scaling.OtherBudget
}

// Propose implements Scaler.
func (a *Ahead) Propose(v View) ([]scaling.Proposal, int32) {
	out := []scaling.Proposal{a.current(v)}
	if !a.choice.Use {
		return out, 0
	}
	peak, ok := a.forecast.Max(a.choice.Level.Quantile, v.Now, v.Now.Add(a.lead))
	if !ok {
		return out, 0
	}
	return append(out, scaling.Proposal{
		Metric: "prediction", Replicas: a.choice.Level.Replicas(peak, a.capacity),
		Why: fmt.Sprintf("the %g quantile of the next %s peaks at %.4g", a.choice.Level.Quantile, a.lead, peak),
	}), 0
}
