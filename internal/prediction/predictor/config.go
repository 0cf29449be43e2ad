// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/metrics"
)

// Source is where history is read from.
type Source interface {
	metrics.Querier
	metrics.AggregateReader
}

// Config is what a Predictor needs. DefaultConfig has the defaults; Source has none.
type Config struct {
	Source Source
	// OwnFault tells whether an error of the source is about the query and not about the source. Such a query is tried
	// again rarely; any other error makes the predictor ask the source less often altogether. Nil: no error is.
	OwnFault func(error) bool
	// StateDir keeps checkpoints, so that a restart reads what is new and not everything; empty for none.
	StateDir string

	// Refresh is the time between two reads of new samples.
	Refresh time.Duration
	// StaleAfter is how much older than it may be the newest sample is when a forecast is called stale. A sample may be two
	// steps old and what is waited for it to settle.
	StaleAfter time.Duration
	// ModelUpdate is how long a forecast of dsp or percentile may be used before it is made anew; auto learns from each
	// sample.
	ModelUpdate time.Duration
	// Settle is how long a sample is waited for, half a step at most: what is younger is not read yet, since it may not be
	// complete.
	Settle time.Duration
	// Checkpoint is the time between two checkpoints.
	Checkpoint time.Duration

	// Workers is how many reads are under way at once. All but one of them may be reads of whole histories.
	Workers int
	// MaxSeries bounds the number of models; what comes beyond is refused with a reason.
	MaxSeries int
	// MaxSeriesPerQuery bounds the series of one expression.
	MaxSeriesPerQuery int

	Clock clock.Clock
	Log   logr.Logger
}

// DefaultConfig has every default in one place.
//
// A refresh of two minutes is twice the step, and three missed ones make a forecast stale. 20,000 models of 29 KiB are
// 580 MiB. Twelve hours are gocrane's --model-update-interval.
func DefaultConfig() Config {
	return Config{
		Refresh:           2 * time.Minute,
		StaleAfter:        6 * time.Minute,
		ModelUpdate:       12 * time.Hour,
		Settle:            30 * time.Second,
		Checkpoint:        30 * time.Minute,
		Workers:           4,
		MaxSeries:         20_000,
		MaxSeriesPerQuery: 50,
		Clock:             clock.RealClock{},
		Log:               logr.Discard(),
	}
}

// Back-off of a failing source and of a query that the source refuses.
const (
	firstPause, lastPause = 5 * time.Second, time.Minute
	lastRetry             = 15 * time.Minute
	// maxPoints bounds the samples that one read asks for, over all its names.
	maxPoints = 300_000
	// maxNames bounds the names in one query, and so its length.
	maxNames = 200
)

func (c *Config) settle(step time.Duration) time.Duration { return min(c.Settle, step/2) }

// staleAge is the age of the newest sample from which a forecast is stale. The newest sample that is read may be two steps
// old and what it takes to settle; reads that come a step apart at most do not make it stale.
func (c *Config) staleAge(step time.Duration) time.Duration {
	return max(c.StaleAfter, 2*step) + c.settle(step) + 2*step
}

// validate names everything that is wrong.
func (c Config) validate() error {
	var errs []error
	if c.Source == nil || c.Clock == nil {
		errs = append(errs, errors.New("a source and a clock are needed"))
	}
	for name, d := range map[string]time.Duration{
		"refresh": c.Refresh, "stale after": c.StaleAfter, "model update": c.ModelUpdate, "checkpoint": c.Checkpoint,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s: %s: must be more than 0", name, d))
		}
	}
	if c.Settle < 0 {
		errs = append(errs, fmt.Errorf("settle: %s: must be 0 or more", c.Settle))
	}
	if c.Workers < 1 || c.MaxSeries < 1 || c.MaxSeriesPerQuery < 1 {
		errs = append(errs, fmt.Errorf("workers %d, series %d, series per query %d: must be 1 or more", c.Workers, c.MaxSeries, c.MaxSeriesPerQuery))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("predictor: %w", err)
	}
	return nil
}
