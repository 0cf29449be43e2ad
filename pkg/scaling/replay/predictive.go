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
	fleet     *scaling.Fleet
	series    string
	evaluator *forecastvalue.Evaluator
}

// NewPredictive returns a scaler for a configuration, whose choices are at the price of a fleet. name identifies the series in it.
func NewPredictive(cfg Config, model Forecaster, fleet *scaling.Fleet, name string) (*Predictive, error) {
	plant := scaling.Plant{
		Capacity:            cfg.Capacity,
		Target:              cfg.Target,
		Lag:                 cfg.Startup + cfg.Delay + cfg.Sync,
		StabilizationWindow: cfg.Behavior.Down.StabilizationWindow,
	}

	evaluator, err := forecastvalue.New(plant, forecastWindow)
	if err != nil {
		return nil, err
	}

	reactive := Reactive{Target: cfg.Target, Tolerance: cfg.Tolerance}
	return &Predictive{
		Reactive:  reactive,
		plant:     plant,
		model:     model,
		fleet:     fleet,
		series:    name,
		evaluator: evaluator,
	}, nil
}

// Name implements Scaler.
func (*Predictive) Name() string { return "ehpa" }

// Choice returns the current choice of the ledger.
func (p *Predictive) Choice() scaling.Choice { return p.evaluator.Choice() }

// Observe implements Scaler.
func (p *Predictive) Observe(at time.Time, load float64) {
	p.model.Observe(at, load)
	if p.evaluator.ForecastDue(at) {
		// After an error the previous forecast is used until it ends. The series of a simulation are not of the same time, so accounts
		// do not expire.
		f, err := p.model.Forecast(forecastvalue.ForecastWindows * forecastWindow)
		if err != nil {
			f = forecast.Forecast{}
		}

		price := p.fleet.Update("", p.series, p.evaluator.Account(), at, time.Time{})
		p.evaluator.SetForecast(f, at, price)
	}

	p.evaluator.Observe(at, load)
}

// Propose implements Scaler. Like in a cluster, the HPA reads the forecast as an external metric with an average value, to which its
// tolerance applies.
func (p *Predictive) Propose(v ScalerInput) ([]scaling.Proposal, int32) {
	out := []scaling.Proposal{p.reactiveProposal(v)}
	if choice := p.evaluator.Choice(); choice.Use {
		out = p.appendProposal(out, choice.Level, v)
	}

	return out, 0
}

// appendProposal adds the proposal of a level; none without a forecast.
func (p *Predictive) appendProposal(out []scaling.Proposal, level scaling.Level, v ScalerInput) []scaling.Proposal {
	peak, ok := p.evaluator.Peak(level, v.Now)
	if !ok {
		return out
	}

	proposal := scaling.Proposal{
		Metric: "prediction", Reason: fmt.Sprintf("the %g quantile of the next %s peaks at %.4g", level.Quantile, p.evaluator.Lead(level), peak),
	}
	load := p.plant.EquivalentLoad(level, peak)
	proposal.Replicas, proposal.Err = scaling.ReplicasForTotal(
		amount(load, p.plant.Capacity), amount(p.plant.TargetPerPod(), p.plant.Capacity), v.Current, p.Tolerance)

	return append(out, proposal)
}

// Plain is a Predictive scaler that always uses the plain plan.
type Plain struct{ *Predictive }

// Name implements Scaler.
func (Plain) Name() string { return "plain" }

// Propose implements Scaler.
func (p Plain) Propose(v ScalerInput) ([]scaling.Proposal, int32) {
	return p.appendProposal([]scaling.Proposal{p.reactiveProposal(v)}, scaling.PlainPlan(), v), 0
}

// LowTarget is a Reactive scaler with a lower target.
type LowTarget struct{ Reactive }

// lowTargetShare is the target of a LowTarget as a share of that of the others.
const lowTargetShare = 0.93

// NewLowTarget returns an HPA with a target that costs about as much as a forecast may.
func NewLowTarget(cfg Config) LowTarget {
	return LowTarget{Reactive{Target: cfg.Target * lowTargetShare, Tolerance: cfg.Tolerance}}
}

// Name implements Scaler.
func (LowTarget) Name() string { return "low-target" }
