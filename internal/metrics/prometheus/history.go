// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// longestSpan bounds a request; a longer one most likely has no start.
const longestSpan = 2 * 366 * day

// historyReader reads the usage of containers. It implements metrics.DayReader.
type historyReader struct {
	*queries

	intervals *intervalDetector
	owners    *ownerReader
}

var _ metrics.DayReader = (*historyReader)(nil)

// Usage implements metrics.UsageReader. Days are read in order and, within a day, namespaces by name. Up to Config.Concurrency queries run
// while the caller consumes the chunks of the first.
func (h *historyReader) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		r, parts, err := h.plan(ctx, req)
		if err != nil {
			yield(metrics.Chunk{}, err)
			return
		}

		var owners *owners
		for part, err := range inOrder(ctx, h.client.cfg.Concurrency, r.jobs(parts)) {
			if err != nil {
				yield(metrics.Chunk{}, err)
				return
			}

			// The owners of a day come before its tables.
			if part.owners != nil {
				owners = part.owners
			}

			for _, t := range part.tables {
				for i := range t.rows {
					if !yield(t.chunk(i, owners, r.grid.step), nil) {
						return
					}
				}

				h.client.count(func(s *metrics.Stats) {
					s.Gaps += t.gaps
					s.Invalid += t.invalid
				})
			}
		}
	}
}

// plan checks a request and cuts it into queries. It returns no queries where there is no data.
func (h *historyReader) plan(ctx context.Context, req metrics.UsageRequest) (*usageRead, []usageQuery, error) {
	metric, err := usageMetric(req.Resource)
	if err != nil {
		return nil, nil, err
	}

	if err := checkStep(req.Step); err != nil {
		return nil, nil, err
	}

	if !req.Start.Before(req.End) {
		return nil, nil, fmt.Errorf("usage from %v to %v: the start must be before the end", req.Start, req.End)
	}

	if span := req.End.Sub(req.Start); span > longestSpan {
		return nil, nil, fmt.Errorf("usage from %v to %v: must be at most %v", req.Start, req.End, longestSpan)
	}

	end := h.beforeNow(req.End)
	g, err := h.gridOf(ctx, req.Resource, metric, end, req.Step)
	if err != nil {
		return nil, nil, err
	}

	r := &usageRead{
		historyReader: h,
		metric:        metric,
		grid:          g,
		names:         newInterner(),
	}

	from := ceilTime(req.Start, g.step)
	to := end.UTC().Truncate(g.step)
	if !from.Before(to) {
		return r, nil, nil
	}

	in, err := h.scopeOf(ctx, req.Namespaces, h.expr.containers(metric), from, to)
	if err != nil {
		return nil, nil, err
	}

	if in, err = h.owners.clusters.narrow(ctx, in); err != nil {
		return nil, nil, err
	}

	est, err := h.estimate(ctx, metric, in, metrics.Window{Start: from, End: to, Step: g.step})
	if err != nil {
		return nil, nil, err
	}

	if r.scope = in.with(est); len(r.scope.names) == 0 {
		return r, nil, nil
	}

	if req.Resource.IsHourly() && est.counted && len(est.byNamespace) == 0 {
		return r, nil, nil // Many servers lack the metric; the count suffices to find out.
	}

	cfg := h.client.cfg
	if g.pairing > 0 { // The server evaluates several pairs for each sample that it returns.
		cfg.MaxSamples = max(1, maxPairs*cfg.MaxSamples/int(g.step/g.pairing))
	}

	return r, planQueries(r.scope.names, from, to, g.step, est, cfg), nil
}

// maxPairs x Config.MaxSamples bounds the pairs of samples that one query evaluates.
const maxPairs = 4

// beforeNow limits an end to the present: later samples have a wrong clock.
func (h *historyReader) beforeNow(end time.Time) time.Time {
	if now := h.now(); now.Before(end) {
		return now
	}

	return end
}

// gridOf returns the grid of a request that ends at the given time.
func (h *historyReader) gridOf(ctx context.Context, resource metrics.UsageKind, metric string, end time.Time, requested time.Duration) (gridPlan, error) {
	measured := metric
	switch resource {
	case metrics.AnonymousMemory:
		return hourlyGrid(metric, 0), nil
	case metrics.UnreclaimableMemory:
		measured = memoryMetric // Many servers lack the metric of the page cache, which is scraped with this one.
	}

	scrape, _, err := h.intervals.scrapeInterval(ctx, measured, end)
	if err != nil {
		return gridPlan{}, err
	}

	if resource.IsHourly() {
		return hourlyGrid(metric, scrape.usual), nil
	}

	return planGrid(metric, scrape, requested), nil
}

// ceilTime returns the first time on the grid of step that is not before t.
func ceilTime(t time.Time, step time.Duration) time.Time {
	down := t.UTC().Truncate(step)
	if down.Before(t) {
		return down.Add(step)
	}

	return down
}

// estimate counts containers by namespace, once for all namespaces and days. Estimates only avoid queries that the server would reject as
// too large; where it rejects this one, usage is read without them.
func (h *historyReader) estimate(ctx context.Context, metric string, in scope, w metrics.Window) (estimates, error) {
	est := estimates{byNamespace: map[string]series.Series{}}
	w.Step = max(w.Step, min(time.Hour, w.End.Sub(w.Start)/4).Truncate(time.Second))
	err := h.eachBatch(ctx, in, func(matchers []Matcher) error {
		query := fmt.Sprintf("count by (namespace) (%s (%s))", byContainerLabels, h.expr.containers(metric, matchers...))
		counts, err := h.Range(ctx, query, w)
		for _, c := range counts {
			est.byNamespace[c.Labels["namespace"]] = c.Series
		}

		return err
	})

	if err != nil && !isTooLarge(err) {
		return est, fmt.Errorf("counting containers: %w", err)
	}

	est.counted = err == nil
	return est, nil
}

// Identity implements metrics.DayReader. It contains the address without password, the user, the additions to each query, and a hash of the
// headers, which can hold both a tenant and secrets. Tokens are left out, as they change while the data stay the same.
func (h *historyReader) Identity() string {
	cfg := h.client.cfg
	var b strings.Builder
	fmt.Fprintf(&b, "url=%q user=%q", h.client.base.String(), cfg.Username)

	for _, name := range slices.Sorted(maps.Keys(cfg.Params)) {
		fmt.Fprintf(&b, " param=%q:%q", name, cfg.Params[name])
	}

	fmt.Fprintf(&b, " labels=%q", selector("", cfg.Matchers...))
	if headers := h.client.headers.latest(); len(headers) > 0 {
		sum := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			fmt.Fprintf(sum, "%q:%q\n", name, headers[name])
		}
		fmt.Fprintf(&b, " headers=%s", hex.EncodeToString(sum.Sum(nil)[:8]))
	}

	return b.String()
}

// Step implements metrics.DayReader.
func (h *historyReader) Step(ctx context.Context, resource metrics.UsageKind, end time.Time) (time.Duration, error) {
	metric, err := usageMetric(resource)
	if err != nil {
		return 0, err
	}

	g, err := h.gridOf(ctx, resource, metric, h.beforeNow(end), 0)
	return g.step, err
}

// CountPods implements metrics.DayReader with one query of few series.
func (h *historyReader) CountPods(ctx context.Context, pods []string, start, end time.Time) (int, error) {
	if len(pods) == 0 || !start.Before(end) || end.Sub(start) > day {
		return 0, fmt.Errorf("counting %d pods from %v to %v: must be at least one pod and at most a day", len(pods), start, end)
	}

	sel := h.expr.anyUsage(OneOf("pod", pods))
	// The range of a selector includes its end; the millisecond leaves the sample of midnight to the next day.
	query := fmt.Sprintf("count(group by (pod) (last_over_time(%s[%s])))", sel, promDuration(end.Sub(start)))
	found, err := h.Instant(ctx, query, end.Add(-time.Millisecond))
	if err != nil {
		return 0, fmt.Errorf("counting the pods of a cached day: %w", err)
	}

	if len(found) == 0 {
		return 0, nil
	}

	return int(found[0].Value), nil
}

// Stats implements metrics.DayReader.
func (h *historyReader) Stats() metrics.Stats { return h.client.statistics() }
