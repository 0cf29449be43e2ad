// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"iter"
	"time"

	"crane.io/crane/internal/kube/workload"
)

// ErrUnsupported means that a data source does not support a request. The source itself has not failed; another source may be used.
var ErrUnsupported = errors.New("no data source answers this")

// Capabilities lists what a data source supports. A field is nil where the source lacks the capability.
type Capabilities struct {
	// Usage reads the usage history of containers.
	Usage UsageReader
	// Days is set where Usage reads day by day.
	Days DayReader
	// OOM reads OOM kills of the past.
	OOM OOMReader
	// Heaps reads the sizes of Java heaps.
	Heaps HeapReader
	// Hourly reads metrics with one value per hour.
	Hourly HourlyReader
	// Aggregates reads usage summed by workload or node.
	Aggregates AggregateReader
	// Queries evaluates PromQL.
	Queries Querier
	// Realtime reads current usage.
	Realtime RealtimeReader
	// MemoryBreakdown lists the resources beside Memory that the source may hold, the most precise first. The first one with data is enough.
	MemoryBreakdown []Resource
	// Caching returns the same capabilities over readers that cache, within a bound, the owners of pods. It serves consecutive reads and is
	// then dropped.
	Caching func() Capabilities
}

// WithCache returns the capabilities with a cache for consecutive reads, or c where the source has none.
func (c Capabilities) WithCache() Capabilities {
	if c.Caching == nil {
		return c
	}
	return c.Caching()
}

// Fail returns an iterator whose only element is an error.
func Fail[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// Inventory lists workloads.
type Inventory interface {
	// Inventory returns the workloads that have pods now. Empty namespaces mean all. Labels and UID are empty where the source does not know
	// them; Replicas is the number of pods that have not ended.
	Inventory(ctx context.Context, namespaces []string) ([]workload.Workload, error)
}

// Prober examines a data source before it is used.
type Prober interface {
	Probe(ctx context.Context) (SourceReport, error)
}

// SourceReport describes a data source: which metrics it holds, how far back and at which interval.
type SourceReport struct {
	// Server is the kind and version of the server; empty where it does not report them.
	Server string
	// Metrics lists every metric that Crane reads, present or not.
	Metrics []MetricPresence
	// ScrapeInterval is the time between samples of container metrics; 0 where there are none.
	ScrapeInterval time.Duration
	// Oldest and Newest are the times of the oldest and newest container sample, accurate to minutes; zero where there is none.
	Oldest, Newest time.Time
	// History is the age of the oldest sample. HistoryTruncated is set where there may be older samples than the probe searches for.
	History          time.Duration
	HistoryTruncated bool
	// ClockSkew is the server's clock minus the local clock; 0 where the server sent no date.
	ClockSkew time.Duration
	// Warnings are sentences for the user, the most important first.
	Warnings []string
}

// MetricPresence describes one metric that Crane reads.
type MetricPresence struct {
	Metric string
	// Series is the number of series at SourceReport.Newest; 0 means that the metric is missing.
	Series int
	// Impact states what Crane cannot do without the metric.
	Impact string
	// Required is set for metrics without which there are no recommendations.
	Required bool
}

// Missing returns the metrics that the source lacks.
func (r SourceReport) Missing() []MetricPresence {
	var out []MetricPresence
	for _, m := range r.Metrics {
		if m.Series == 0 {
			out = append(out, m)
		}
	}
	return out
}
