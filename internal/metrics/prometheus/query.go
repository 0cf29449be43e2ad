// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// Paths of the API below the base URL.
const (
	instantPath     = "/api/v1/query"
	rangePath       = "/api/v1/query_range"
	seriesPath      = "/api/v1/series"
	labelValuesPath = "/api/v1/label/namespace/values"
	buildInfoPath   = "/api/v1/status/buildinfo"
)

// queries evaluates PromQL. It implements metrics.Querier.
type queries struct {
	client *client
	expr   expressions
}

func (q *queries) now() time.Time { return q.client.cfg.Now() }

// Instant implements metrics.Querier.
func (q *queries) Instant(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error) {
	all, err := q.Vector(ctx, query, at)
	if err != nil {
		return nil, err
	}

	valid := slices.DeleteFunc(all, func(s metrics.Sample) bool { return math.IsNaN(s.Value) || math.IsInf(s.Value, 0) })
	q.client.count(func(s *metrics.Stats) { s.Invalid += int64(len(all) - len(valid)) })
	return valid, nil
}

// Vector evaluates a query at one time, as Instant does, but also returns values that are NaN or infinite, for callers that report on each
// series.
func (q *queries) Vector(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error) {
	samples := &sampleCollector{}
	if err := q.client.query(ctx, instantPath, instantParams(query, at), "vector", samples); err != nil {
		return nil, wrapQueryError("instant query", query, err)
	}

	return samples.list, nil
}

// sampleCollector collects every sample with all its labels.
type sampleCollector struct{ list []metrics.Sample }

func (c *sampleCollector) reset() { c.list = nil }

func (c *sampleCollector) add(labels []label, points []point) error {
	named := toLabels(labels)
	for _, p := range points {
		c.list = append(c.list, metrics.Sample{Labels: named, Time: time.UnixMilli(p.ms).UTC(), Value: p.value})
	}

	return nil
}

func toLabels(labels []label) metrics.Labels {
	out := make(metrics.Labels, len(labels))
	for _, l := range labels {
		out[string(l.name)] = string(l.value)
	}

	return out
}

// Range implements metrics.Querier. A window with more points than one query may have is read in several consecutive queries, whose series
// are joined by their labels. The result is sorted by labels.
func (q *queries) Range(ctx context.Context, query string, w metrics.Window) ([]metrics.LabeledSeries, error) {
	if w.Step < time.Second || !w.Start.Before(w.End) {
		return nil, fmt.Errorf("range query %s: must have a step of at least 1s and a start before the end, got %v from %v to %v",
			truncateQuery(query), w.Step, w.Start, w.End)
	}

	points := int((w.End.Sub(w.Start) + w.Step - 1) / w.Step)
	all := &grid{
		start:  w.Start,
		step:   w.Step,
		points: points,
		byName: map[string]*metrics.LabeledSeries{},
	}

	for from := 0; from < points; from += q.client.cfg.MaxPoints {
		if err := q.readShard(ctx, query, all, from, min(points-from, q.client.cfg.MaxPoints)); err != nil {
			return nil, wrapQueryError("range query", query, err)
		}
	}

	return all.sorted(), nil
}

// readShard reads some cells of the grid, in halves where the server rejects the query as too large.
func (q *queries) readShard(ctx context.Context, query string, all *grid, from, n int) error {
	part := &shard{
		grid:     all,
		from:     from,
		cells:    n,
		maxCells: maxAnswer * q.client.cfg.MaxSamples,
	}

	params := rangeParams(query, all.at(from), all.at(from+n-1), all.step)
	err := q.client.query(ctx, rangePath, params, "matrix", part)
	// The samples of the failed query are dropped; each half starts a shard of its own.
	if isTooLarge(err) && n > 1 {
		q.client.count(func(s *metrics.Stats) { s.Splits++ })
		if err := q.readShard(ctx, query, all, from, n/2); err != nil {
			return err
		}

		return q.readShard(ctx, query, all, from+n/2, n-n/2)
	}

	if err != nil {
		return err
	}

	part.commit()
	q.client.count(func(s *metrics.Stats) { s.Invalid += part.invalid })
	return nil
}

// grid joins the shards of a range query.
type grid struct {
	start  time.Time
	step   time.Duration
	points int
	byName map[string]*metrics.LabeledSeries
}

func (g *grid) at(i int) time.Time { return g.start.Add(time.Duration(i) * g.step) }

func (g *grid) sorted() []metrics.LabeledSeries {
	out := make([]metrics.LabeledSeries, 0, len(g.byName))
	for _, name := range slices.Sorted(maps.Keys(g.byName)) {
		out = append(out, *g.byName[name])
	}

	return out
}

// shard collects one response on the cells [from, from+cells) of the grid.
type shard struct {
	grid        *grid
	from, cells int
	maxCells    int
	found       []shardSeries
	invalid     int64
}

type shardSeries struct {
	name   string
	labels metrics.Labels
	values []float64
}

func (p *shard) reset() {
	p.found = p.found[:0]
	p.invalid = 0
}

func (p *shard) add(labels []label, points []point) error {
	if (len(p.found)+1)*p.cells > p.maxCells {
		return errTooMany
	}

	f := shardSeries{labels: toLabels(labels), values: slices.Repeat([]float64{series.Gap()}, p.cells)}
	f.name = labelsKey(f.labels)
	cells := cellsOf(p.grid.at(p.from), p.grid.step, p.cells)
	for _, pt := range points {
		i, ok := cells.index(pt.ms)
		if !ok || math.IsNaN(pt.value) || math.IsInf(pt.value, 0) {
			p.invalid++
			continue
		}

		if !series.IsGap(f.values[i]) {
			p.invalid++
		}
		f.values[i] = pt.value
	}

	p.found = append(p.found, f)
	return nil
}

// commit adds the collected series to the grid.
func (p *shard) commit() {
	for _, f := range p.found {
		gridSeries, ok := p.grid.byName[f.name]
		if !ok {
			gridSeries = &metrics.LabeledSeries{
				Labels: f.labels,
				Series: series.Series{Start: p.grid.start, Step: p.grid.step, Values: slices.Repeat([]float64{series.Gap()}, p.grid.points)},
			}
			p.grid.byName[f.name] = gridSeries
		}

		copy(gridSeries.Values[p.from:], f.values)
	}
}

// cells maps times to the indexes of a grid.
type cells struct {
	start, step int64 // milliseconds
	n           int
}

func cellsOf(start time.Time, step time.Duration, n int) cells {
	return cells{start: start.UnixMilli(), step: step.Milliseconds(), n: n}
}

// index returns the cell of a time in milliseconds since the Unix epoch; ok is false off the grid.
func (c cells) index(ms int64) (i int, ok bool) {
	offset := ms - c.start
	if offset < 0 || offset%c.step != 0 || offset/c.step >= int64(c.n) {
		return 0, false
	}

	return int(offset / c.step), true
}

// labelsKey returns a unique text for a label set.
func labelsKey(labels metrics.Labels) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(strconv.Quote(name) + strconv.Quote(labels[name]))
	}

	return b.String()
}

func instantParams(query string, at time.Time) url.Values {
	return url.Values{"query": {query}, "time": {formatTime(at)}}
}

func rangeParams(query string, first, last time.Time, step time.Duration) url.Values {
	seconds := strconv.FormatFloat(step.Seconds(), 'f', -1, 64)
	return url.Values{"query": {query}, "start": {formatTime(first)}, "end": {formatTime(last)}, "step": {seconds}}
}

// formatTime formats t as seconds since the Unix epoch, with milliseconds.
func formatTime(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

// wrapQueryError adds the query to an error that the query caused. Errors of the connection or of authorization stay as they are; the
// caller adds the purpose of the query to those.
func wrapQueryError(what, query string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Kind == Refused || e.Kind == TooLarge {
		return fmt.Errorf("%s %s: %w", what, truncateQuery(query), err)
	}

	return err
}

// truncateQuery keeps a query short in an error.
func truncateQuery(query string) string {
	const maxLength = 100
	if len(query) <= maxLength {
		return query
	}

	return query[:maxLength] + "..."
}
