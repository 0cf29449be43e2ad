// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forecastvalue decides how much of a forecast is worth using for scaling: which quantile, how far ahead, and how full pods
// may be. The replay and the controllers share it, so that the figures of a replay hold for a cluster.
//
// An Evaluator gets samples and forecasts in time order and accounts in a scaling.Ledger what using the forecasts would have cost
// and avoided. It depends neither on models nor on clusters.
package forecastvalue

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/scaling"
)

const (
	// leadReserve is added to the lag, because a forecast may be some minutes early or late.
	leadReserve = 75 * time.Second
	// HistoryLength is the length of the history that is replayed when the evaluation of a series starts. Older samples have lost
	// most of their weight in the ledger.
	HistoryLength = 7 * 24 * time.Hour
	// ForecastWindows is the horizon of a forecast in windows: it is renewed after one, and the second bridges a failure.
	ForecastWindows = 2
)

// Evaluator evaluates the forecasts of one series. It is not safe for concurrent use.
type Evaluator struct {
	plant      scaling.Plant
	window     time.Duration
	ledger     *scaling.Ledger
	forecast   forecast.Forecast
	highs      forecast.Forecast // of forecast
	forecastAt time.Time
	choice     scaling.Choice
}

// New returns an Evaluator without history. window is the time between two forecasts; > 0.
func New(plant scaling.Plant, window time.Duration) (*Evaluator, error) {
	if window <= 0 {
		return nil, fmt.Errorf("window %s: must be positive", window)
	}

	ledger, err := scaling.NewLedger(plant)
	if err != nil {
		return nil, fmt.Errorf("keeping account of the forecast: %w", err)
	}

	return &Evaluator{plant: plant, window: window, ledger: ledger}, nil
}

// Reconfigure changes the plant and the window and keeps the accounts. An error leaves the old ones.
func (e *Evaluator) Reconfigure(plant scaling.Plant, window time.Duration) error {
	if window <= 0 {
		return fmt.Errorf("window %s: must be positive", window)
	}

	if err := e.ledger.SetPlant(plant); err != nil {
		return fmt.Errorf("keeping account of the forecast: %w", err)
	}

	e.plant = plant
	e.window = window
	return nil
}

// State returns the accounts in some hundred bytes, for Restore.
func (e *Evaluator) State() []byte {
	state, err := e.ledger.MarshalBinary()
	if err != nil { // It never fails; without a state the accounts restart.
		return nil
	}

	return state
}

// Restore continues from a state. The error wraps scaling.ErrInvalidState and leaves the evaluator unchanged.
func (e *Evaluator) Restore(state []byte) error {
	return e.ledger.UnmarshalBinary(state)
}

// Recorded reports whether the restored state includes a sample of that time.
func (e *Evaluator) Recorded(at time.Time) bool { return !at.After(e.ledger.LastSample()) }

// Lead returns how far ahead a level uses the forecast: the lag of the plant plus a reserve, and for highs this quarter of an hour and
// the next.
func Lead(plant scaling.Plant, level scaling.Level) time.Duration {
	lead := plant.Lag + leadReserve
	if level.Basis == scaling.BasisHighs {
		return max(lead, forecast.HighStep)
	}

	return lead
}

// Lead returns the lead time of a level on the evaluator's plant.
func (e *Evaluator) Lead(level scaling.Level) time.Duration { return Lead(e.plant, level) }

// Window returns the time between two forecasts.
func (e *Evaluator) Window() time.Duration { return e.window }

// ForecastDue reports whether the current forecast is a window old.
func (e *Evaluator) ForecastDue(at time.Time) bool { return at.Sub(e.forecastAt) >= e.window }

// Account returns what each level cost and avoided, for scaling.Fleet.
func (e *Evaluator) Account() scaling.Account { return e.ledger.Account() }

// SetForecast sets a forecast that was made at a time, and returns the choice for it at the price of a scaling.Fleet. An empty forecast
// extends the use of the previous one until its end.
func (e *Evaluator) SetForecast(forecast forecast.Forecast, at time.Time, price float64) scaling.Choice {
	if len(forecast.Values) > 0 {
		e.forecast = forecast
		e.highs = forecast.OfHighs()
	}

	e.forecastAt = at
	e.choice = e.ledger.Choose(price)
	return e.choice
}

// Choice returns the latest choice.
func (e *Evaluator) Choice() scaling.Choice { return e.choice }

// Peak returns the maximum of a level's quantile of the current forecast from a time to the level's lead; false without a forecast.
func (e *Evaluator) Peak(level scaling.Level, at time.Time) (float64, bool) {
	return e.basis(level).Max(level.Quantile, at, at.Add(e.Lead(level)))
}

// basis returns the forecast that a level uses.
func (e *Evaluator) basis(level scaling.Level) *forecast.Forecast {
	if level.Basis == scaling.BasisHighs {
		return &e.highs
	}

	return &e.forecast
}

// Observe records a sample. Invalid loads, and samples that are not newer than the last one, are ignored.
func (e *Evaluator) Observe(at time.Time, load float64) {
	e.ledger.Observe(at, load, func(level scaling.Level) (float64, bool) { return e.Peak(level, at) })
}
