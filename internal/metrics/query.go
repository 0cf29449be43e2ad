// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"crane.io/crane/pkg/series"
)

// Labels name a series of a source.
type Labels map[string]string

// Sample is one value of one series.
type Sample struct {
	Labels Labels
	Time   time.Time
	Value  float64
}

// LabelledSeries is a series with the labels that the source gave it.
type LabelledSeries struct {
	Labels Labels
	series.Series
}

// Window is a stretch of time on a grid: Start, Start+Step, ... before End.
type Window struct {
	Start, End time.Time
	Step       time.Duration
}

// Querier answers free queries in the language of its source (PromQL). Usage of containers goes through UsageReader,
// which batches; Querier is for the few figures beside it.
type Querier interface {
	// Instant evaluates query at one time. Samples that are NaN or infinite are left out.
	Instant(ctx context.Context, query string, at time.Time) ([]Sample, error)
	// Range evaluates query on the grid of the window. What is missing, NaN or infinite is a gap.
	Range(ctx context.Context, query string, w Window) ([]LabelledSeries, error)
}

// Stats says what reading has cost and what was wrong with the data. All counts only grow.
type Stats struct {
	// Queries sent, Retries of them after a failure, and Splits of those that the server found too large.
	Queries, Retries, Splits int64
	// Bytes read from the server, after decompression.
	Bytes int64
	// Series and Samples received.
	Series, Samples int64
	// Gaps are the missing values between the first and the last sample of each chunk.
	Gaps int64
	// Invalid are samples that became gaps or were dropped: NaN, infinite, negative, twice at one time, off the grid.
	Invalid int64
	// QueryTime is the sum over all queries of the time from request to last byte, in parallel ones counted each.
	QueryTime time.Duration
	// Warnings are the distinct warnings of the server, the first few of them. A warning usually means that part of the
	// data was out of reach.
	Warnings []string
}
