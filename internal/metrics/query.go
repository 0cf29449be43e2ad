// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"crane.io/crane/pkg/series"
)

// Labels identify a series of a source.
type Labels map[string]string

// Sample is one value of one series.
type Sample struct {
	Labels Labels
	Time   time.Time
	Value  float64
}

// LabelledSeries is a series with the labels that the source returned.
type LabelledSeries struct {
	Labels Labels
	series.Series
}

// Window is a time range on a grid: Start, Start+Step, ... before End.
type Window struct {
	Start, End time.Time
	Step       time.Duration
}

// Querier evaluates queries in the language of its source (PromQL). The usage of containers is read through UsageReader, which batches.
type Querier interface {
	// Instant evaluates a query at one time. It leaves out samples that are NaN or infinite.
	Instant(ctx context.Context, query string, at time.Time) ([]Sample, error)
	// Range evaluates a query on the grid of the window. Values that are missing, NaN or infinite are gaps.
	Range(ctx context.Context, query string, w Window) ([]LabelledSeries, error)
}

// Stats are statistics of a source since its creation. All counts only increase.
type Stats struct {
	// Queries sent, Retries after a failure, and Splits of queries that the server rejected as too large.
	Queries, Retries, Splits int64
	// Bytes received, after decompression.
	Bytes int64
	// Series and Samples received.
	Series, Samples int64
	// Gaps are the missing values between the first and last sample of each chunk.
	Gaps int64
	// Invalid counts samples that became gaps or were dropped: NaN, infinite, negative, duplicate or off the grid.
	Invalid int64
	// QueryTime is the sum over all queries of the time from the request to the last byte. Parallel queries count separately.
	QueryTime time.Duration
	// Warnings are the first few distinct warnings of the server. A warning usually means that part of the data was unavailable.
	Warnings []string
}
