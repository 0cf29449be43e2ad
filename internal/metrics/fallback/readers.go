// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"context"
	"iter"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

var (
	_ metrics.UsageReader     = (*List)(nil)
	_ metrics.OOMReader       = (*List)(nil)
	_ metrics.CapacityReader  = (*List)(nil)
	_ metrics.HeapReader      = (*List)(nil)
	_ metrics.Querier         = (*List)(nil)
	_ metrics.AggregateReader = (*List)(nil)
	_ metrics.HourlyReader    = (*List)(nil)
	_ metrics.RealtimeReader  = (*List)(nil)
)

// Capabilities returns the capabilities that any of the sources has.
func (l *List) Capabilities() metrics.Capabilities {
	anySource := func(supported func(metrics.Capabilities) bool) bool {
		return slices.ContainsFunc(l.sources, func(m member) bool { return supported(m.Capabilities) })
	}

	out := metrics.Capabilities{Caching: l.caching}
	if anySource(func(c metrics.Capabilities) bool { return c.Usage != nil }) {
		out.Usage = l
	}

	if anySource(func(c metrics.Capabilities) bool { return c.OOM != nil }) {
		out.OOM = l
	}

	if anySource(func(c metrics.Capabilities) bool { return c.Capacity != nil }) {
		out.Capacity = l
	}

	if anySource(func(c metrics.Capabilities) bool { return c.Heaps != nil }) {
		out.Heaps = l
	}

	if anySource(func(c metrics.Capabilities) bool { return c.Hourly != nil }) {
		out.Hourly = l
	}

	if anySource(func(c metrics.Capabilities) bool { return c.Aggregates != nil }) {
		out.Aggregates = l
	}

	if anySource(func(c metrics.Capabilities) bool { return c.Queries != nil }) {
		out.Queries = l
	}

	if anySource(func(c metrics.Capabilities) bool { return c.Realtime != nil }) {
		out.Realtime = l
	}

	// Sources that do not support these resources have no data of them.
	if i := slices.IndexFunc(l.sources, func(m member) bool { return m.MemoryBreakdown != nil }); i >= 0 {
		out.MemoryBreakdown = l.sources[i].MemoryBreakdown
	}

	return out
}

// caching returns the capabilities of the sources with their caches.
func (l *List) caching() metrics.Capabilities {
	cached := *l
	cached.sources = slices.Clone(l.sources)
	for i := range cached.sources {
		cached.sources[i].Capabilities = cached.sources[i].WithCache()
	}

	out := cached.Capabilities()
	out.Caching = nil
	return out
}

// first returns the result of the first source that answers a request.
func first[T any](ctx context.Context, l *List, request string, read func(metrics.Capabilities) (T, error)) (T, error) {
	a := attempts{list: l, request: request}
	for _, m := range l.order() {
		out, err := read(m.Capabilities)
		if next, err := a.record(ctx, m, err); !next {
			return out, err
		}
	}

	var none T
	return none, a.err()
}

// stream returns the elements of the first source that answers a request. read returns nil for a source without the capability.
func stream[T any](ctx context.Context, l *List, request string, read func(metrics.Capabilities) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		a := attempts{list: l, request: request}
		var none T
		for _, m := range l.order() {
			elements := read(m.Capabilities)
			if elements == nil {
				continue
			}

			started := false
			var failure error
			for element, err := range elements {
				if err != nil {
					failure = err
					break
				}

				started = true
				if !yield(element, nil) {
					return
				}
			}

			next, err := a.record(ctx, m, failure)
			if next && !started {
				continue
			}

			if next { // Part of the result was consumed.
				err = a.err()
			}
			if err != nil {
				yield(none, err)
			}

			return
		}

		yield(none, a.err())
	}
}

// Usage implements metrics.UsageReader.
func (l *List) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return stream(ctx, l, "history", func(c metrics.Capabilities) iter.Seq2[metrics.Chunk, error] {
		if c.Usage == nil {
			return nil
		}

		return c.Usage.Usage(ctx, req)
	})
}

// OOMKills implements metrics.OOMReader.
func (l *List) OOMKills(ctx context.Context, w metrics.Window, namespaces []string) iter.Seq2[metrics.OOMKill, error] {
	return stream(ctx, l, "oom kills", func(c metrics.Capabilities) iter.Seq2[metrics.OOMKill, error] {
		if c.OOM == nil {
			return nil
		}

		return c.OOM.OOMKills(ctx, w, namespaces)
	})
}

// Capacities implements metrics.CapacityReader.
func (l *List) Capacities(ctx context.Context, w metrics.Window, namespaces []string) (*metrics.Capacities, error) {
	return first(ctx, l, "capacities", func(c metrics.Capabilities) (*metrics.Capacities, error) {
		if c.Capacity == nil {
			return nil, metrics.ErrUnsupported
		}

		return c.Capacity.Capacities(ctx, w, namespaces)
	})
}

// Heaps implements metrics.HeapReader.
func (l *List) Heaps(ctx context.Context, w metrics.Window, namespaces []string) iter.Seq2[metrics.Heap, error] {
	return stream(ctx, l, "heaps", func(c metrics.Capabilities) iter.Seq2[metrics.Heap, error] {
		if c.Heaps == nil {
			return nil
		}

		return c.Heaps.Heaps(ctx, w, namespaces)
	})
}

// CurrentUsage implements metrics.RealtimeReader.
func (l *List) CurrentUsage(ctx context.Context, resource metrics.UsageKind, namespaces []string) iter.Seq2[metrics.Reading, error] {
	return stream(ctx, l, "present use", func(c metrics.Capabilities) iter.Seq2[metrics.Reading, error] {
		if c.Realtime == nil {
			return nil
		}

		return c.Realtime.CurrentUsage(ctx, resource, namespaces)
	})
}

// Instant implements metrics.Querier.
func (l *List) Instant(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error) {
	return first(ctx, l, "query", func(c metrics.Capabilities) ([]metrics.Sample, error) {
		if c.Queries == nil {
			return nil, metrics.ErrUnsupported
		}

		return c.Queries.Instant(ctx, query, at)
	})
}

// Range implements metrics.Querier.
func (l *List) Range(ctx context.Context, query string, w metrics.Window) ([]metrics.LabeledSeries, error) {
	return first(ctx, l, "query", func(c metrics.Capabilities) ([]metrics.LabeledSeries, error) {
		if c.Queries == nil {
			return nil, metrics.ErrUnsupported
		}

		return c.Queries.Range(ctx, query, w)
	})
}

// WorkloadUsage implements metrics.AggregateReader.
func (l *List) WorkloadUsage(ctx context.Context, req metrics.WorkloadsRequest) (map[string]series.Series, error) {
	return first(ctx, l, "history of workloads", func(c metrics.Capabilities) (map[string]series.Series, error) {
		if c.Aggregates == nil {
			return nil, metrics.ErrUnsupported
		}

		return c.Aggregates.WorkloadUsage(ctx, req)
	})
}

// NodeUsage implements metrics.AggregateReader.
func (l *List) NodeUsage(ctx context.Context, req metrics.NodesRequest) (map[string]series.Series, error) {
	return first(ctx, l, "history of nodes", func(c metrics.Capabilities) (map[string]series.Series, error) {
		if c.Aggregates == nil {
			return nil, metrics.ErrUnsupported
		}

		return c.Aggregates.NodeUsage(ctx, req)
	})
}

// Hourly implements metrics.HourlyReader.
func (l *List) Hourly(ctx context.Context, req metrics.HourlyRequest) ([]metrics.HourlySeries, error) {
	return first(ctx, l, "figures by the hour", func(c metrics.Capabilities) ([]metrics.HourlySeries, error) {
		if c.Hourly == nil {
			return nil, metrics.ErrUnsupported
		}

		return c.Hourly.Hourly(ctx, req)
	})
}

// Recent returns a reader of short, recent windows. Where no source answers with history it returns current usage as a single value.
func (l *List) Recent() metrics.UsageReader { return recentReader{l} }

type recentReader struct{ list *List }

// Usage implements metrics.UsageReader.
func (r recentReader) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		started := false
		failed := false
		for chunk, err := range r.list.Usage(ctx, req) {
			if failed = err != nil; failed && !started && ctx.Err() == nil && r.list.Capabilities().Realtime != nil {
				break
			}

			started = true
			if !yield(chunk, err) || failed {
				return
			}
		}

		if started || !failed {
			return
		}

		for now, err := range r.list.CurrentUsage(ctx, req.Resource, req.Namespaces) {
			if err != nil {
				yield(metrics.Chunk{}, err)
				return
			}

			if now.Time.Before(req.Start) || !req.End.IsZero() && now.Time.After(req.End.Add(now.Window)) {
				continue // Measured too long ago, or by a clock that differs.
			}

			step := max(now.Window, time.Second)
			values := series.Series{Start: now.Time.Add(-step), Step: step, Values: []float64{now.Value}}
			if !yield(metrics.Chunk{Key: now.Key, Series: values}, nil) {
				return
			}
		}
	}
}
