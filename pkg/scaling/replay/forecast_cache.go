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

// newForecaster returns a Forecaster for another run over the same samples.
func (c *forecastCache) newForecaster() *cachedForecaster { return &cachedForecaster{forecastCache: c} }

// cachedForecaster is one run over the samples.
type cachedForecaster struct {
	*forecastCache
	observedHere int64
}

// Observe implements Forecaster. The model gets each sample once.
func (c *cachedForecaster) Observe(at time.Time, value float64) {
	c.observedHere++

	if c.observedHere > c.observed {
		c.model.Observe(at, value)
		c.observed = c.observedHere
	}
}

// Forecast implements Forecaster.
func (c *cachedForecaster) Forecast(horizon time.Duration) (forecast.Forecast, error) {
	cached, ok := c.origins[c.observedHere]
	if !ok {
		cached.forecast, cached.err = c.model.Forecast(horizon)
		c.origins[c.observedHere] = cached
	}

	return cached.forecast, cached.err
}
