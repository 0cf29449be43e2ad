// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package auto is the default forecasting algorithm: it replays simple methods over the newest seasons of a series,
// weights them by their loss, and forecasts with the mixture.
package auto

import (
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// Algorithm implements forecast.Algorithm by fitting a Model to the history.
type Algorithm struct {
	// Holidays are known holidays; the zero value has none.
	Holidays Calendar
}

// Name implements forecast.Algorithm.
func (Algorithm) Name() string { return "auto" }

// Forecast implements forecast.Algorithm.
func (a Algorithm) Forecast(history series.Series, horizon time.Duration) (forecast.Forecast, error) {
	history, err := forecast.Check(history, horizon)
	if err != nil {
		return forecast.Forecast{}, err
	}
	m := NewModel(history.Step)
	start := history.Start.Unix()
	for i, v := range history.Values {
		m.observe(start+int64(i)*int64(history.Step/time.Second), v)
	}
	return m.ForecastWith(a.Holidays, horizon)
}
