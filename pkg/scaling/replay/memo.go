// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"time"

	"crane.io/crane/pkg/forecast"
)

// memo keeps the forecasts that a model made, by origin, so that the settings of a plan share them: a forecast depends on the
// series alone.
type memo struct {
	model   Forecaster
	seen    int64 // samples the model was told
	origins map[int64]made
}

type made struct {
	forecast forecast.Forecast
	err      error
}

func newMemo(model Forecaster) *memo { return &memo{model: model, origins: map[int64]made{}} }

// replay returns a Forecaster for one more pass over the same samples.
func (m *memo) replay() *pass { return &pass{memo: m} }

// pass is one pass over the samples.
type pass struct {
	*memo
	at int64
}

// Observe implements Forecaster. The model itself hears each sample once.
func (p *pass) Observe(at time.Time, value float64) {
	if p.at++; p.at > p.seen {
		p.model.Observe(at, value)
		p.seen = p.at
	}
}

// Forecast implements Forecaster.
func (p *pass) Forecast(horizon time.Duration) (forecast.Forecast, error) {
	known, ok := p.origins[p.at]
	if !ok {
		known.forecast, known.err = p.model.Forecast(horizon)
		p.origins[p.at] = known
	}
	return known.forecast, known.err
}
