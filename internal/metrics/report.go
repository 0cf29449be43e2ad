// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"
)

// SourceReport says what a source can give: which metrics it holds, how far back and how often.
type SourceReport struct {
	// Server is the kind and version of the server as far as it tells, else empty.
	Server string
	// Metrics lists every metric that Crane reads, present or not.
	Metrics []MetricPresence
	// ScrapeInterval is the distance between samples of container metrics; 0 where there are none.
	ScrapeInterval time.Duration
	// Oldest and Newest are the times of the oldest and the newest container sample that were seen, within minutes; zero
	// where there is none.
	Oldest, Newest time.Time
	// History is how far back samples reach from now. HistoryTruncated says that there may be more: the probe looks
	// only so far.
	History          time.Duration
	HistoryTruncated bool
	// ClockSkew is the server's clock minus ours; 0 where the server sent no date.
	ClockSkew time.Duration
	// Warnings are sentences for the user, most important first.
	Warnings []string
}

// MetricPresence is one metric and what it is for.
type MetricPresence struct {
	Metric string
	// Series is the number of series at SourceReport.Newest; 0 means that the metric is missing.
	Series int
	// Impact says in plain words what Crane cannot do without the metric.
	Impact string
	// Required metrics are those without which there is no recommendation at all.
	Required bool
}

// Missing lists the capabilities that the source lacks.
func (r SourceReport) Missing() []MetricPresence {
	var out []MetricPresence
	for _, c := range r.Metrics {
		if c.Series == 0 {
			out = append(out, c)
		}
	}
	return out
}

// Prober looks at a source before it is used.
type Prober interface {
	Probe(ctx context.Context) (SourceReport, error)
}
