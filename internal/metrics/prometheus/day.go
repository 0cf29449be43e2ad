// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
)

var _ metrics.DayReader = (*Source)(nil)

// Identity implements metrics.DayReader: the address without password, the user, what is added to each query, and a hash
// of the headers, which may hold both a tenant and secrets. Tokens are left out: they change, the data do not.
func (s *Source) Identity() string {
	cfg := s.client.cfg
	var b strings.Builder
	fmt.Fprintf(&b, "url=%q user=%q", s.client.base.String(), cfg.Username)
	for _, name := range slices.Sorted(maps.Keys(cfg.Params)) {
		fmt.Fprintf(&b, " param=%q:%q", name, cfg.Params[name])
	}
	fmt.Fprintf(&b, " labels=%q", selector("", cfg.Matchers...))
	if len(cfg.Headers) > 0 {
		sum := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(cfg.Headers)) {
			fmt.Fprintf(sum, "%q:%q\n", name, cfg.Headers[name])
		}
		fmt.Fprintf(&b, " headers=%s", hex.EncodeToString(sum.Sum(nil)[:8]))
	}
	return b.String()
}

// Step implements metrics.DayReader.
func (s *Source) Step(ctx context.Context, resource metrics.Resource, end time.Time) (time.Duration, error) {
	metric, err := usageMetric(resource)
	if err != nil {
		return 0, err
	}
	if now := s.now(); now.Before(end) {
		end = now
	}
	g, err := s.gridOf(ctx, resource, metric, end, 0)
	return g.step, err
}

// Present implements metrics.DayReader, in one query of few series.
func (s *Source) Present(ctx context.Context, pods []string, start, end time.Time) (int, error) {
	if len(pods) == 0 || !start.Before(end) || end.Sub(start) > day {
		return 0, fmt.Errorf("looking for %d pods from %v to %v: want some, and at most a day", len(pods), start, end)
	}
	sel := s.containers("", oneOf("__name__", []string{cpuMetric, memoryMetric}), oneOf("pod", pods))
	// The range of a selector is closed at its end; the millisecond leaves the sample of midnight to the next day.
	query := fmt.Sprintf("count(group by (pod) (last_over_time(%s[%s])))", sel, promDuration(end.Sub(start)))
	found, err := s.Instant(ctx, query, end.Add(-time.Millisecond))
	if err != nil {
		return 0, fmt.Errorf("looking for the pods of a day that is kept: %w", err)
	}
	if len(found) == 0 {
		return 0, nil
	}
	return int(found[0].Value), nil
}
