// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package auto is the gate: it replays simple methods over the newest seasons of a series, weighs them by how they did,
// and forecasts with the mixture.
package auto

import (
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/series"
)

// Algorithm is the gate as a forecast.Algorithm: it fits a Model to the history and asks it.
type Algorithm struct {
	// Holidays are known days that go their own way; the zero value knows none.
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
