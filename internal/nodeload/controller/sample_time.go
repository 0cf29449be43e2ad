// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"crane.io/crane/pkg/nodeload"
)

// sampleTimeRange is how far back recorded sample times are searched: a dead exporter has no present one.
const sampleTimeRange = "1h"

// sampleTimes holds the sample times of a round by query, since metrics of one resource share a query.
type sampleTimes struct {
	mu      sync.Mutex
	byQuery map[string]func() ([]time.Time, string)
}

// sampleTimes returns the time of the newest raw sample by index of the node, zero for a node without one, or why
// there are none for all nodes.
func (r *reader) sampleTimes(ctx context.Context, m nodeload.Metric) ([]time.Time, string) {
	query := m.SampleTime
	if query == "" {
		name := m.DefaultSampleTime()
		if name == "" {
			return nil, "it has a query and no sampleTime"
		}

		series, err := r.sources.Prometheus.Selector(name)
		if err != nil {
			return nil, err.Error()
		}

		query = "max_over_time(" + series + "[" + sampleTimeRange + "])"
	}

	// Concurrent readers of one query share its result; the query runs outside of the lock.
	r.times.mu.Lock()
	if r.times.byQuery == nil {
		r.times.byQuery = map[string]func() ([]time.Time, string){}
	}

	read, ok := r.times.byQuery[query]
	if !ok {
		read = sync.OnceValues(func() ([]time.Time, string) { return r.readSampleTimes(ctx, query) })
		r.times.byQuery[query] = read
	}

	r.times.mu.Unlock()
	return read()
}

// readSampleTimes runs one query for all nodes. Of several series of a node the oldest time counts. Times in the future
// count as the present, and invalid ones as missing.
func (r *reader) readSampleTimes(ctx context.Context, query string) ([]time.Time, string) {
	vector, err := r.sources.Prometheus.Vector(ctx, query, r.now)
	if err != nil {
		return nil, fmt.Sprintf("query %s: %v", query, err)
	}

	times := make([]time.Time, len(r.nodes))
	anyNode := false
	for _, s := range recordedSeries(vector) {
		i, ok := r.match.find(s.Labels)
		if !ok || !(s.Value > 0 && s.Value < 1e12) {
			continue
		}

		at := time.Unix(int64(s.Value), 0).UTC() // annotations have whole seconds
		if at.After(r.now) {
			at = r.now
		}

		if times[i].IsZero() || at.Before(times[i]) {
			times[i] = at
			anyNode = true
		}
	}

	if !anyNode {
		return nil, fmt.Sprintf("query %s returns no node", query)
	}

	return times, ""
}
