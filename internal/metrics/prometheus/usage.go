// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"math"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// longestSpan of a reading; a longer one is most likely a start that nobody set.
const longestSpan = 2 * 366 * day

// Usage implements metrics.UsageReader. Days are read in order and, within a day, namespaces by name; up to
// Config.Concurrency queries are under way while the chunks of the first are visited.
func (s *Source) Usage(ctx context.Context, req metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	return s.usage(ctx, req, nil, visit)
}

func (s *Source) usage(ctx context.Context, req metrics.UsageRequest, kept *keptOwners, visit func(metrics.Chunk) error) error {
	metric, err := usageMetric(req.Resource)
	if err != nil {
		return err
	}
	if err := checkStep(req.Step); err != nil {
		return err
	}
	if !req.Start.Before(req.End) {
		return fmt.Errorf("usage from %v to %v: the start must be before the end", req.Start, req.End)
	}
	if span := req.End.Sub(req.Start); span > longestSpan {
		return fmt.Errorf("usage from %v to %v: want at most %v", req.Start, req.End, longestSpan)
	}
	end := req.End
	if now := s.now(); now.Before(end) {
		end = now // samples beyond it have a clock that is wrong
	}
	g, err := s.gridOf(ctx, req.Resource, metric, end, req.Step)
	if err != nil {
		return err
	}
	from, to := ceilTime(req.Start, g.step), end.UTC().Truncate(g.step)
	if !from.Before(to) {
		return nil
	}
	in, err := s.scopeOf(ctx, req.Namespaces, s.containers(metric), from, to)
	if err != nil {
		return err
	}
	est, err := s.estimate(ctx, metric, in, metrics.Window{Start: from, End: to, Step: g.step})
	if err != nil {
		return err
	}
	if in = in.with(est); len(in.names) == 0 {
		return nil
	}
	if req.Resource.IsHourly() && est.counted && len(est.byNamespace) == 0 {
		return nil // Many servers have no such metric: one query has told.
	}
	r := &reading{source: s, metric: metric, grid: g, scope: in, visit: visit, names: newInterner(), kept: kept}
	return inOrder(ctx, s.client.cfg.Concurrency, r.jobs(planQueries(in.names, from, to, g.step, est, s.client.cfg)))
}

// gridOf is the grid on which a reading that ends at a time is made.
func (s *Source) gridOf(ctx context.Context, resource metrics.Resource, metric string, end time.Time, asked time.Duration) (gridPlan, error) {
	if resource.IsHourly() {
		return gridPlan{step: time.Hour, window: time.Hour}, nil
	}
	scrape, _, err := s.scrapeInterval(ctx, metric, end)
	if err != nil {
		return gridPlan{}, err
	}
	return planGrid(metric, scrape, asked), nil
}

// ceilTime is the first time on the grid of step that is not before t.
func ceilTime(t time.Time, step time.Duration) time.Time {
	down := t.UTC().Truncate(step)
	if down.Before(t) {
		return down.Add(step)
	}
	return down
}

// reading is one call of Usage.
type reading struct {
	source *Source
	metric string
	grid   gridPlan
	scope  scope
	visit  func(metrics.Chunk) error
	owners *owners
	names  *interner
	// kept holds the owners of days that were read before; nil where nothing is kept.
	kept *keptOwners
}

// jobs puts the owners of a day before the units of that day.
func (r *reading) jobs(units []usageQuery) []job {
	jobs := make([]job, 0, len(units)+len(units)/2)
	var today time.Time
	for i, u := range units {
		if d := u.from.Truncate(day); d != today {
			today = d
			end := u.end(r.grid.step)
			for _, later := range units[i:] {
				if later.from.Truncate(day) != d {
					break
				}
				end = later.end(r.grid.step)
			}
			jobs = append(jobs, r.ownersJob(u.from, end))
		}
		jobs = append(jobs, r.usageJob(u))
	}
	return jobs
}

func (r *reading) ownersJob(from, to time.Time) job {
	return func(ctx context.Context) (func() error, error) {
		o := r.kept.find(from, to, r.scope)
		if o == nil {
			var err error
			if o, err = r.source.readOwners(ctx, from, to, r.scope); err != nil {
				return nil, fmt.Errorf("owners of pods on %s: %w", from.Format(time.DateOnly), err)
			}
			r.kept.keep(from, to, r.scope, o)
		}
		return func() error {
			r.owners = o
			return nil
		}, nil
	}
}

func (r *reading) usageJob(u usageQuery) job {
	return func(ctx context.Context) (func() error, error) {
		tables, err := r.read(ctx, u)
		if err != nil {
			return nil, fmt.Errorf("%s usage on %s: %w", r.metric, u.from.Format(time.DateOnly), err)
		}
		return func() error {
			for _, t := range tables {
				if err := r.deliver(t); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
}

// read asks for one unit, and for its halves if the server finds it too large.
func (r *reading) read(ctx context.Context, u usageQuery) ([]*table, error) {
	step := r.grid.step
	t := &table{unit: u, cells: cellsOf(u.from.Add(step), step, u.cells), maxValues: maxAnswer * r.source.client.cfg.MaxSamples, names: r.names}
	query := r.source.usageExpr(r.metric, r.grid, u.matchers()...)
	err := r.source.client.query(ctx, rangePath, rangeParams(query, u.from.Add(step), u.end(step), step), "matrix", t)
	if err == nil {
		return []*table{t}, nil
	}
	halves, ok := u.split(step, isSeriesLimit(err))
	if !isTooLarge(err) || !ok {
		return nil, err
	}
	r.source.client.count(func(s *metrics.Stats) { s.Splits++ })
	var out []*table
	for _, half := range halves {
		part, err := r.read(ctx, half)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

func (r *reading) deliver(t *table) error {
	step := r.grid.step
	holes := int64(0)
	for i := range t.rows {
		row := &t.rows[i]
		values := t.values[row.from:row.to]
		for _, v := range values {
			if series.IsGap(v) {
				holes++
			}
		}
		ref, node := r.owners.resolve(row.namespace, row.pod)
		chunk := metrics.Chunk{
			Key: metrics.ContainerKey{Workload: ref, Pod: row.pod, Container: row.container, Node: node},
			Series: series.Series{
				Start: t.unit.from.Add(time.Duration(row.first) * step), Step: step, Values: values[:len(values):len(values)],
			},
		}
		if err := r.visit(chunk); err != nil {
			return err
		}
	}
	r.source.client.count(func(s *metrics.Stats) {
		s.Gaps += holes
		s.Invalid += t.bad
	})
	return nil
}

// table is the answer to a unit: a row for each container, its values one after the other in one slice.
type table struct {
	unit      usageQuery
	cells     cells
	maxValues int
	names     *interner

	rows   []row
	values []float64
	seen   map[rowKey]bool
	bad    int64
}

type rowKey struct{ namespace, pod, container string }

type row struct {
	rowKey
	// first is the cell of the first value; from and to delimit the row in the values.
	first, from, to int
}

func (t *table) reset() {
	t.rows, t.values, t.bad = t.rows[:0], t.values[:0], 0
	t.seen = map[rowKey]bool{}
}

// add keeps a row from its first to its last good sample, and nothing of a row without any.
func (t *table) add(labels []label, points []point) error {
	key := t.key(labels)
	if key.namespace == "" || key.pod == "" || key.container == "" || t.seen[key] {
		t.bad += int64(len(points))
		return nil
	}
	t.seen[key] = true
	first, last := t.cells.n, -1
	for i := range points {
		cell, ok := t.cells.index(points[i].ms)
		if v := points[i].value; !ok || !(v >= 0) || math.IsInf(v, 1) {
			points[i].value = series.Gap()
			t.bad++
			continue
		}
		first, last = min(first, cell), max(last, cell)
	}
	if last < 0 {
		return nil
	}
	from := len(t.values)
	if from+last-first+1 > t.maxValues {
		return errTooMany
	}
	t.values = appendGaps(t.values, last-first+1)
	t.fill(t.values[from:], first, points)
	t.rows = append(t.rows, row{rowKey: key, first: first, from: from, to: len(t.values)})
	return nil
}

// fill puts the good points into the cells from first on; the last of several for one cell wins.
func (t *table) fill(values []float64, first int, points []point) {
	for _, p := range points {
		if series.IsGap(p.value) {
			continue
		}
		cell, _ := t.cells.index(p.ms)
		if !series.IsGap(values[cell-first]) {
			t.bad++
		}
		values[cell-first] = p.value
	}
}

func (t *table) key(labels []label) rowKey {
	var key rowKey
	for _, l := range labels {
		switch string(l.name) {
		case "namespace":
			key.namespace = t.names.str(l.value)
		case "pod":
			key.pod = string(l.value)
		case "container":
			key.container = t.names.str(l.value)
		}
	}
	return key
}
