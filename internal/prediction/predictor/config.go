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
	"crane.io/crane/pkg/scaling"
)

// Source reads history.
type Source interface {
	metrics.Querier
	metrics.AggregateReader
}

// Config configures a Predictor. DefaultConfig returns the defaults; Source has none.
type Config struct {
	Source Source
	// IsQueryError reports whether an error concerns the query and not the source. Such a query is retried rarely;
	// any other error reduces the rate of all requests to the source. If nil, no error is a query error.
	IsQueryError func(error) bool
	// StateDir is the directory for checkpoints, which spare a restart from reading all histories; empty for none.
	StateDir string

	// Refresh is the interval between reads of new samples.
	Refresh time.Duration
	// StaleAfter is added to the expected maximum age of the newest sample (two steps and the settling time); a
	// forecast whose newest sample is older is stale.
	StaleAfter time.Duration
	// ModelUpdate is how long a forecast of dsp or percentile is reused; auto is updated by each sample.
	ModelUpdate time.Duration
	// TimeZone is the zone whose midnight ends a day for auto; nil for UTC.
	TimeZone *time.Location
	// Settle is the minimum age of samples that are read, at most half a step: younger ones may be incomplete.
	Settle time.Duration
	// Checkpoint is the interval between checkpoints.
	Checkpoint time.Duration

	// Workers is the number of concurrent reads. At most all but one of them read whole histories of workloads, all but one something else, and half of
	// them expressions; histories and expressions of one namespace use one less.
	Workers int
	// MaxSeries is the maximum number of models; further requests are refused with an error.
	MaxSeries int
	// MaxSeriesPerQuery is the maximum number of series of one expression.
	MaxSeriesPerQuery int
	// MaxBytes bounds the memory of all models, in bytes; checkpoints use at most one and a half times as much of the disk.
	MaxBytes int64
	// MaxNamespaceBytes bounds the memory of the models that objects of one namespace request, in bytes.
	MaxNamespaceBytes int64
	// ReadTimeout bounds one read of the source with all its retries and splits.
	ReadTimeout time.Duration

	// ScalingBudget is the maximum of the additional replica hours of all forecasts that scale, as a fraction of those of the HPAs
	// alone.
	ScalingBudget float64

	Clock clock.Clock
	Log   logr.Logger
}

// DefaultConfig returns the defaults.
//
// A refresh interval of two minutes is twice the step, and three missed refreshes make a forecast stale. 20,000
// models of 29 KiB use 570 MiB; a quarter of that lets four namespaces fill the rest beside an exhausted one. Twelve hours is
// gocrane's --model-update-interval. One request to Prometheus may take 3 minutes, and a history of auto takes two.
func DefaultConfig() Config {
	return Config{
		ScalingBudget:     scaling.DefaultBudget,
		Refresh:           2 * time.Minute,
		StaleAfter:        6 * time.Minute,
		ModelUpdate:       12 * time.Hour,
		Settle:            30 * time.Second,
		Checkpoint:        30 * time.Minute,
		Workers:           6,
		MaxSeries:         20_000,
		MaxSeriesPerQuery: 50,
		MaxBytes:          600 << 20,
		MaxNamespaceBytes: 150 << 20,
		ReadTimeout:       6 * time.Minute,
		Clock:             clock.RealClock{},
		Log:               logr.Discard(),
	}
}

// Backoff of a failing source and of a query that the source rejects.
const (
	firstPause = 5 * time.Second
	lastPause  = time.Minute
	lastRetry  = 15 * time.Minute
	// maxPoints is the maximum number of samples of one read, over all its names.
	maxPoints = 300_000
	// maxNames is the maximum number of names in one query, which bounds its length.
	maxNames = 200
)

func (c *Config) settle(step time.Duration) time.Duration { return min(c.Settle, step/2) }

// staleAge returns the age of the newest sample above which a forecast is stale. The newest sample may be two steps
// plus the settling time old; reads at most a step apart do not make it stale.
func (c *Config) staleAge(step time.Duration) time.Duration {
	return max(c.StaleAfter, 2*step) + c.settle(step) + 2*step
}

// validate returns an error that lists every invalid field.
func (c Config) validate() error {
	var errs []error
	if c.Source == nil || c.Clock == nil {
		errs = append(errs, errors.New("source and clock are required"))
	}

	// Unlike settle, none of these may be 0.
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
	if c.MaxBytes < 1 || c.MaxNamespaceBytes < 1 || c.ReadTimeout <= 0 {
		errs = append(errs, fmt.Errorf("bytes %d, bytes per namespace %d, read timeout %s: must be more than 0", c.MaxBytes, c.MaxNamespaceBytes, c.ReadTimeout))
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("predictor: %w", err)
	}

	return nil
}
