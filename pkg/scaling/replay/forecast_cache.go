// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"time"

	"crane.io/crane/pkg/forecast"
)

// forecastCache keeps the forecasts of a model by origin, so that the scenarios of a plan share them: a forecast depends on the
// series alone.
type forecastCache struct {
	model    Forecaster
	observed int64 // samples passed to the model
	origins  map[int64]cachedForecast
}

type cachedForecast struct {
	forecast forecast.Forecast
	err      error
}

func newForecastCache(model Forecaster) *forecastCache {
	return &forecastCache{model: model, origins: map[int64]cachedForecast{}}
}

// newForecaster returns a Forecaster for another pass over the same samples.
func (m *forecastCache) newForecaster() *cachedForecaster { return &cachedForecaster{forecastCache: m} }

// cachedForecaster is one pass over the samples.
type cachedForecaster struct {
	*forecastCache
	observedHere int64
}

// Observe implements Forecaster. The model gets each sample once.
func (p *cachedForecaster) Observe(at time.Time, value float64) {
	p.observedHere++

	if p.observedHere > p.observed {
		p.model.Observe(at, value)
		p.observed = p.observedHere
	}
}

// Forecast implements Forecaster.
func (p *cachedForecaster) Forecast(horizon time.Duration) (forecast.Forecast, error) {
	known, ok := p.origins[p.observedHere]
	if !ok {
		known.forecast, known.err = p.model.Forecast(horizon)
		p.origins[p.observedHere] = known
	}

	return known.forecast, known.err
}
