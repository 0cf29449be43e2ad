// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forecastvalue follows one series of load and says how much of its forecast is worth acting on: which quantile, looked for
// how far ahead, for pods how full. The replay and the controllers of a cluster go through it alike, so that the figures of the one
// are what the other gets.
//
// It is told samples and forecasts in the order of time and keeps account (scaling.Ledger) of what acting on them would have cost
// and spared. It knows neither models nor clusters.
package forecastvalue

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/scaling"
)

const (
	// leadReserve is how much sooner than the lag load is looked for: a forecast is some minutes early or late.
	leadReserve = 75 * time.Second
	// HistoryLength is how much of a past that is known already is played through when a series is first followed: what is older has lost most
	// of its weight in the account.
	HistoryLength = 7 * 24 * time.Hour
	// ForecastWindows is how many windows a forecast reaches: it is made anew after one, and the other bridges a fault.
	ForecastWindows = 2
)

// Evaluator keeps account of one series. It is not safe for concurrent use.
type Evaluator struct {
	plant      scaling.Plant
	window     time.Duration
	ledger     *scaling.Ledger
	forecast   forecast.Forecast
	forecastAt time.Time
	choice     scaling.Choice
}

// New returns a follower that knows nothing yet. window is the time between two forecasts; > 0.
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

// Reconfigure takes another plant and window; the account goes on. An error leaves the old ones.
func (f *Evaluator) Reconfigure(plant scaling.Plant, window time.Duration) error {
	if window <= 0 {
		return fmt.Errorf("window %s: must be positive", window)
	}
	if err := f.ledger.SetPlant(plant); err != nil {
		return fmt.Errorf("keeping account of the forecast: %w", err)
	}
	f.plant, f.window = plant, window
	return nil
}

// State returns the account in some hundred bytes, for Restore.
func (f *Evaluator) State() []byte {
	state, err := f.ledger.MarshalBinary()
	if err != nil { // It never fails; without a state the account begins anew.
		return nil
	}
	return state
}

// Restore goes on from a state. The error wraps scaling.ErrInvalidState and leaves the follower as it was.
func (f *Evaluator) Restore(state []byte) error {
	return f.ledger.UnmarshalBinary(state)
}

// Recorded tells whether a sample of that time has been booked already, by the account that State returned.
func (f *Evaluator) Recorded(at time.Time) bool { return !at.After(f.ledger.LastSample()) }

// Lead is how far ahead load is looked for: as long as it takes from load to ready pods, and a reserve.
func Lead(plant scaling.Plant) time.Duration { return plant.Lag + leadReserve }

// Lead is that of the follower's plant.
func (f *Evaluator) Lead() time.Duration { return Lead(f.plant) }

// Window is the time between two forecasts.
func (f *Evaluator) Window() time.Duration { return f.window }

// ForecastDue tells whether the forecast that is followed is a window old.
func (f *Evaluator) ForecastDue(at time.Time) bool { return at.Sub(f.forecastAt) >= f.window }

// SetForecast takes a forecast that was made at a time, chooses what to do about it and returns that. One without a step ages the old one:
// what is left of it is followed to its end.
func (f *Evaluator) SetForecast(forecast forecast.Forecast, at time.Time) scaling.Choice {
	if len(forecast.Values) > 0 {
		f.forecast = forecast
	}
	f.forecastAt = at
	f.choice = f.choose()
	return f.choice
}

// choose asks the account, where the forecast is one that may be acted on at all.
func (f *Evaluator) choose() scaling.Choice {
	if skill := f.forecast.Skill; !(skill >= scaling.MinSkill) {
		return scaling.Choice{Reason: fmt.Sprintf("the forecast has no skill: on the series' own past it is %.2f, and less than %v is not acted on", skill, scaling.MinSkill)}
	}
	return f.ledger.Choose(Budget(f.forecast))
}

// Budget is how many more replica hours a forecast may cost: those that follow a season have more.
func Budget(f forecast.Forecast) float64 {
	if f.Period > 0 {
		return scaling.SeasonalBudget
	}
	return scaling.NonSeasonalBudget
}

// Choice is what was chosen last.
func (f *Evaluator) Choice() scaling.Choice { return f.choice }

// Forecast is the one that is followed.
func (f *Evaluator) Forecast() forecast.Forecast { return f.forecast }

// Observe books a sample. Those that are no load, or not newer than the last, are left out.
func (f *Evaluator) Observe(at time.Time, load float64) {
	lead := Lead(f.plant)
	f.ledger.Observe(at, load, func(quantile float64) (float64, bool) {
		return f.forecast.Max(quantile, at, at.Add(lead))
	})
}
