// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"context"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

var (
	_ metrics.UsageReader     = (*List)(nil)
	_ metrics.OOMReader       = (*List)(nil)
	_ metrics.HeapReader      = (*List)(nil)
	_ metrics.MemoryTeller    = (*List)(nil)
	_ metrics.Rereader        = (*List)(nil)
	_ metrics.Querier         = (*List)(nil)
	_ metrics.AggregateReader = (*List)(nil)
	_ metrics.HourlyReader    = (*List)(nil)
	_ metrics.RealtimeReader  = (*List)(nil)
)

// stream asks sources that hand on an answer piece by piece.
func stream[Reader, Piece any](
	ctx context.Context, l *List, question string, visit func(Piece) error, read func(Reader, func(Piece) error) error,
) error {
	return first(ctx, l, question, func(r Reader) answer {
		var a answer
		a.err = read(r, func(p Piece) error {
			a.begun = true
			err := visit(p)
			a.final = a.final || err != nil
			return err
		})
		return a
	})
}

// Usage implements metrics.UsageReader.
func (l *List) Usage(ctx context.Context, req metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	return stream(ctx, l, "history", visit, func(r metrics.UsageReader, visit func(metrics.Chunk) error) error {
		return r.Usage(ctx, req, visit)
	})
}

// OOMKills implements metrics.OOMReader. A list without a source that sees kills calls visit never.
func (l *List) OOMKills(ctx context.Context, w metrics.Window, namespaces []string, visit func(metrics.OOMKill) error) error {
	if !has[metrics.OOMReader](l) {
		return nil
	}
	return stream(ctx, l, "oom kills", visit, func(r metrics.OOMReader, visit func(metrics.OOMKill) error) error {
		return r.OOMKills(ctx, w, namespaces, visit)
	})
}

// Heaps implements metrics.HeapReader. A list without a source that sees heaps calls visit never.
func (l *List) Heaps(ctx context.Context, w metrics.Window, namespaces []string, visit func(metrics.Heap) error) error {
	if !has[metrics.HeapReader](l) {
		return nil
	}
	return stream(ctx, l, "heaps", visit, func(r metrics.HeapReader, visit func(metrics.Heap) error) error {
		return r.Heaps(ctx, w, namespaces, visit)
	})
}

// CurrentUsage implements metrics.RealtimeReader.
func (l *List) CurrentUsage(ctx context.Context, resource metrics.Resource, namespaces []string, visit func(metrics.Reading) error) error {
	return stream(ctx, l, "present use", visit, func(r metrics.RealtimeReader, visit func(metrics.Reading) error) error {
		return r.CurrentUsage(ctx, resource, namespaces, visit)
	})
}

// Instant implements metrics.Querier.
func (l *List) Instant(ctx context.Context, query string, at time.Time) (out []metrics.Sample, err error) {
	err = first(ctx, l, "query", func(r metrics.Querier) answer {
		var err error
		out, err = r.Instant(ctx, query, at)
		return answer{err: err}
	})
	return out, err
}

// Range implements metrics.Querier.
func (l *List) Range(ctx context.Context, query string, w metrics.Window) (out []metrics.LabelledSeries, err error) {
	err = first(ctx, l, "query", func(r metrics.Querier) answer {
		var err error
		out, err = r.Range(ctx, query, w)
		return answer{err: err}
	})
	return out, err
}

// WorkloadUsage implements metrics.AggregateReader.
func (l *List) WorkloadUsage(ctx context.Context, req metrics.WorkloadsRequest) (out map[string]series.Series, err error) {
	err = first(ctx, l, "history of workloads", func(r metrics.AggregateReader) answer {
		var err error
		out, err = r.WorkloadUsage(ctx, req)
		return answer{err: err}
	})
	return out, err
}

// NodeUsage implements metrics.AggregateReader.
func (l *List) NodeUsage(ctx context.Context, req metrics.NodesRequest) (out map[string]series.Series, err error) {
	err = first(ctx, l, "history of nodes", func(r metrics.AggregateReader) answer {
		var err error
		out, err = r.NodeUsage(ctx, req)
		return answer{err: err}
	})
	return out, err
}

// Hourly implements metrics.HourlyReader.
func (l *List) Hourly(ctx context.Context, req metrics.HourlyRequest) (out []metrics.HourlySeries, err error) {
	err = first(ctx, l, "figures by the hour", func(r metrics.HourlyReader) answer {
		var err error
		out, err = r.Hourly(ctx, req)
		return answer{err: err}
	})
	return out, err
}

// MemoryDetails implements metrics.MemoryTeller: what the first source of history can tell. Those that cannot answer have
// no data of it, as a server without the metric.
func (l *List) MemoryDetails() []metrics.Resource {
	for _, m := range l.sources {
		if teller, tells := m.Reader.(metrics.MemoryTeller); tells {
			return teller.MemoryDetails()
		}
	}
	return nil
}

// Rereading implements metrics.Rereader: each source keeps what it finds out, where it can.
func (l *List) Rereading() metrics.UsageReader {
	again := *l
	again.sources = make([]member, len(l.sources))
	for i, m := range l.sources {
		if r, can := m.Reader.(metrics.Rereader); can {
			m.Reader = r.Rereading()
		}
		again.sources[i] = m
	}
	return &again
}

func has[Reader any](l *List) bool {
	for _, m := range l.sources {
		if _, can := m.Reader.(Reader); can {
			return true
		}
	}
	return false
}

// HasHistory tells whether a source keeps what was used.
func (l *List) HasHistory() bool { return has[metrics.UsageReader](l) }

// Recent is a reader of short, recent windows that makes do with what containers use now where no source answers with
// their history: a mean of one value rather than none.
func (l *List) Recent() metrics.UsageReader { return recent{l} }

type recent struct{ list *List }

// Usage implements metrics.UsageReader.
func (r recent) Usage(ctx context.Context, req metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	begun := false
	err := r.list.Usage(ctx, req, func(c metrics.Chunk) error {
		begun = true
		return visit(c)
	})
	if err == nil || begun || ctx.Err() != nil || !has[metrics.RealtimeReader](r.list) {
		return err
	}
	return r.list.CurrentUsage(ctx, req.Resource, req.Namespaces, func(now metrics.Reading) error {
		if now.Time.Before(req.Start) || !req.End.IsZero() && now.Time.After(req.End.Add(now.Window)) {
			return nil // Measured too long ago, or by a clock that is not ours.
		}
		step := max(now.Window, time.Second)
		return visit(metrics.Chunk{Key: now.Key, Series: series.Series{Start: now.Time.Add(-step), Step: step, Values: []float64{now.Value}}})
	})
}
