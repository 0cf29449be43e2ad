// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"crane.io/crane/internal/metrics"
)

// Vector evaluates a query at one time, as Instant does, and leaves nothing out: a caller that has to say of each series
// what is wrong with it gets values that are NaN or infinite as well.
func (s *Source) Vector(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error) {
	collect := &everything{}
	params := url.Values{"query": {query}, "time": {formatTime(at)}}
	if err := s.client.query(ctx, instantPath, params, "vector", collect); err != nil {
		return nil, fmt.Errorf("instant query %s: %w", truncateQuery(query), err)
	}
	return collect.list, nil
}

// everything keeps every sample with all its labels.
type everything struct{ list []metrics.Sample }

func (v *everything) reset() { v.list = nil }

func (v *everything) add(labels []label, points []point) error {
	named := toLabels(labels)
	for _, p := range points {
		v.list = append(v.list, metrics.Sample{Labels: named, Time: time.UnixMilli(p.ms).UTC(), Value: p.value})
	}
	return nil
}
