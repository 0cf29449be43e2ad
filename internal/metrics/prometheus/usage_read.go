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

// usageRead is the execution of one usage request.
type usageRead struct {
	*historyReader

	metric string
	grid   gridPlan
	scope  scope
	names  *interner
}

// usagePart is a result: the owners of a day, or tables of that day.
type usagePart struct {
	owners *owners
	tables []*table
}

// usageJob reads one part.
type usageJob = func(context.Context) (usagePart, error)

// jobs returns a job for each query, and for each day a job that reads its owners first.
func (r *usageRead) jobs(queries []usageQuery) []usageJob {
	jobs := make([]usageJob, 0, len(queries)+len(queries)/2)
	var today time.Time
	// The first query of a day is preceded by a job that reads the owners until the end of the last query of that day.
	for i, q := range queries {
		if d := q.from.Truncate(day); d != today {
			today = d
			end := q.end(r.grid.step)
			for _, later := range queries[i:] {
				if later.from.Truncate(day) != d {
					break
				}

				end = later.end(r.grid.step)
			}

			jobs = append(jobs, func(ctx context.Context) (usagePart, error) { return r.readOwners(ctx, q.from, end) })
		}

		jobs = append(jobs, func(ctx context.Context) (usagePart, error) {
			tables, err := r.readTables(ctx, q)
			if err != nil {
				return usagePart{}, fmt.Errorf("%s usage on %s: %w", r.metric, q.from.Format(time.DateOnly), err)
			}

			return usagePart{tables: tables}, nil
		})
	}

	return jobs
}

func (r *usageRead) readOwners(ctx context.Context, from, to time.Time) (usagePart, error) {
	o, err := r.owners.read(ctx, from, to, r.scope)
	if err != nil {
		return usagePart{}, fmt.Errorf("owners of pods on %s: %w", from.Format(time.DateOnly), err)
	}

	return usagePart{owners: o}, nil
}

// readTables sends one query, or its halves where the server rejects it as too large.
func (r *usageRead) readTables(ctx context.Context, q usageQuery) ([]*table, error) {
	step := r.grid.step
	t := &table{
		from:      q.from,
		cells:     cellsOf(q.from.Add(step), step, q.cells),
		maxValues: maxAnswer * r.client.cfg.MaxSamples,
		names:     r.names,
	}

	query := r.expr.usage(r.metric, r.grid, q.matchers()...)
	err := r.client.query(ctx, rangePath, rangeParams(query, q.from.Add(step), q.end(step), step), "matrix", t)
	if err == nil {
		return []*table{t}, nil
	}

	// A limit on series is met by fewer series, one on samples by less time.
	halves, ok := q.split(step, isSeriesLimit(err))
	if !isTooLarge(err) || !ok {
		return nil, err
	}

	r.client.count(func(s *metrics.Stats) { s.Splits++ })
	var out []*table
	for _, half := range halves {
		part, err := r.readTables(ctx, half)
		if err != nil {
			return nil, err
		}

		out = append(out, part...)
	}

	return out, nil
}

// table collects the response to a query: a row for each container, whose values are consecutive in one slice.
type table struct {
	// from is the start of the first cell.
	from      time.Time
	cells     cells
	maxValues int
	names     *interner

	rows   []row
	values []float64
	seen   map[rowKey]bool
	// gaps counts gaps within rows, invalid the samples that were dropped.
	gaps, invalid int64
}

type rowKey struct{ namespace, pod, container string }

type row struct {
	rowKey
	// first is the cell of the first value; from and to delimit the row in the values.
	first, from, to int
}

func (t *table) reset() {
	t.rows = t.rows[:0]
	t.values = t.values[:0]
	t.gaps = 0
	t.invalid = 0
	t.seen = map[rowKey]bool{}
}

// add keeps a row from its first to its last valid sample, and no row without one.
func (t *table) add(labels []label, points []point) error {
	key := t.key(labels)
	if key.namespace == "" || key.pod == "" || key.container == "" || t.seen[key] {
		t.invalid += int64(len(points))
		return nil
	}

	t.seen[key] = true
	first := t.cells.n
	last := -1
	// Invalid samples become gaps, and the row shrinks to its valid ones.
	for i := range points {
		cell, ok := t.cells.index(points[i].ms)
		if v := points[i].value; !ok || !(v >= 0) || math.IsInf(v, 1) {
			points[i].value = series.Gap()
			t.invalid++
			continue
		}

		first = min(first, cell)
		last = max(last, cell)
	}

	if last < 0 {
		return nil
	}

	from := len(t.values)
	if from+last-first+1 > t.maxValues {
		return errTooMany
	}

	for range last - first + 1 {
		t.values = append(t.values, series.Gap())
	}

	values := t.values[from:]
	for _, p := range points {
		if series.IsGap(p.value) {
			continue
		}

		cell, _ := t.cells.index(p.ms)
		if !series.IsGap(values[cell-first]) {
			t.invalid++
		}

		values[cell-first] = p.value
	}

	for _, v := range values {
		if series.IsGap(v) {
			t.gaps++
		}
	}

	t.rows = append(t.rows, row{
		rowKey: key,
		first:  first,
		from:   from,
		to:     len(t.values),
	})

	return nil
}

// key returns the identifying labels of a series.
func (t *table) key(labels []label) rowKey {
	var key rowKey
	for _, l := range labels {
		switch string(l.name) {
		case "namespace":
			key.namespace = t.names.intern(l.value)
		case "pod":
			key.pod = string(l.value)
		case "container":
			key.container = t.names.intern(l.value)
		}
	}

	return key
}

// chunk returns a row as a chunk.
func (t *table) chunk(i int, owners *owners, step time.Duration) metrics.Chunk {
	row := &t.rows[i]
	ref, node := owners.resolve(row.namespace, row.pod)
	return metrics.Chunk{
		Key: metrics.ContainerKey{
			Workload:  ref,
			Pod:       row.pod,
			Container: row.container,
			Node:      node,
		},
		Series: series.Series{
			Start: t.from.Add(time.Duration(row.first) * step), Step: step, Values: t.values[row.from:row.to:row.to],
		},
	}
}
