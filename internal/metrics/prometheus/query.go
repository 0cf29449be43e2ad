// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Paths below the base URL.
const (
	instantPath     = "/api/v1/query"
	rangePath       = "/api/v1/query_range"
	seriesPath      = "/api/v1/series"
	labelValuesPath = "/api/v1/label/namespace/values"
	buildInfoPath   = "/api/v1/status/buildinfo"
)

// maxAnswer x Config.MaxSamples is the most that is taken from one answer. A server may return a little more than was
// estimated; four times as much is a sign of a wrong query, or of a hostile server.
const maxAnswer = 4

// query sends one query and calls reset before, and visit for each series of, each attempt at its answer. want is the
// type of result that it takes: vector or matrix.
func (c *client) query(ctx context.Context, endpoint string, params url.Values, want string, sink sink) error {
	limit := maxAnswer * int64(c.cfg.MaxSamples)
	return c.call(ctx, request{endpoint: endpoint, params: params}, func(r io.Reader) error {
		sink.reset()
		a, err := decode(r, limit, sink.add)
		if err != nil {
			return err
		}
		if err := a.check(); err != nil {
			return err
		}
		if a.plain || a.resultType != "" && a.resultType != want {
			got := a.resultType
			if got == "" || got == want {
				got = "scalar or string"
			}
			return &Error{
				Kind: Refused, Message: fmt.Sprintf("the query gives a %s, want a %s", sanitize(got), want),
				Advice: "a query must select series",
			}
		}
		c.noteAnswer(a)
		return nil
	})
}

// check turns an answer that is an error in itself into one.
func (a answer) check() error {
	switch {
	case a.status == "success":
		return nil
	case a.status == "" && a.message == "":
		return &malformedError{what: "no status in the answer"}
	}
	return errorFromStatus(200, a.errorType, sanitize(a.message))
}

// labelSets asks for the label sets of the series of a selector that have samples between from and to. The server
// answers from its index and looks at no sample.
func (c *client) labelSets(ctx context.Context, sel string, from, to time.Time, sink sink) error {
	params := url.Values{"match[]": {sel}, "start": {formatTime(from)}, "end": {formatTime(to)}}
	return c.call(ctx, request{endpoint: seriesPath, params: params}, func(r io.Reader) error {
		sink.reset()
		a, err := decodeLabelSets(r, maxAnswer*int64(c.cfg.MaxSamples), sink.add)
		if err == nil {
			err = a.check()
		}
		if err == nil {
			c.noteAnswer(a)
		}
		return err
	})
}

// sink collects the series of one answer. reset forgets those of an attempt that failed.
type sink interface {
	reset()
	add(labels []label, points []point) error
}

// Instant implements metrics.Querier.
func (s *Source) Instant(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error) {
	collect := &samples{}
	params := url.Values{"query": {query}, "time": {formatTime(at)}}
	if err := s.client.query(ctx, instantPath, params, "vector", collect); err != nil {
		return nil, wrapQueryError("instant query", query, err)
	}
	s.client.count(func(st *metrics.Stats) { st.Invalid += collect.bad })
	return collect.list, nil
}

// samples keeps every sample with all its labels: the points of a vector, or of the matrix of a range selector.
type samples struct {
	list []metrics.Sample
	bad  int64
}

func (v *samples) reset() { *v = samples{} }

func (v *samples) add(labels []label, points []point) error {
	named := toLabels(labels)
	for _, p := range points {
		if math.IsNaN(p.value) || math.IsInf(p.value, 0) {
			v.bad++
			continue
		}
		v.list = append(v.list, metrics.Sample{Labels: named, Time: time.UnixMilli(p.ms).UTC(), Value: p.value})
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

// Range implements metrics.Querier. A window of more points than one query may have is read in several, one after the
// other; series are joined by their labels and come in the order of their labels.
func (s *Source) Range(ctx context.Context, query string, w metrics.Window) ([]metrics.LabelledSeries, error) {
	if w.Step < time.Second || !w.Start.Before(w.End) {
		return nil, fmt.Errorf("range query %s: want a step of at least 1s and a start before the end, got %v from %v to %v",
			truncateQuery(query), w.Step, w.Start, w.End)
	}
	points := int((w.End.Sub(w.Start) + w.Step - 1) / w.Step)
	all := &grid{start: w.Start, step: w.Step, points: points, byName: map[string]*metrics.LabelledSeries{}}
	for from := 0; from < points; from += s.client.cfg.MaxPoints {
		if err := s.readShard(ctx, query, all, from, min(points-from, s.client.cfg.MaxPoints)); err != nil {
			return nil, wrapQueryError("range query", query, err)
		}
	}
	return all.sorted(), nil
}

// readShard reads some cells of the grid, in halves where the server finds that too large.
func (s *Source) readShard(ctx context.Context, query string, all *grid, from, n int) error {
	part := &shard{grid: all, from: from, cells: n, maxCells: maxAnswer * s.client.cfg.MaxSamples}
	params := rangeParams(query, all.at(from), all.at(from+n-1), all.step)
	err := s.client.query(ctx, rangePath, params, "matrix", part)
	if isTooLarge(err) && n > 1 {
		s.client.count(func(st *metrics.Stats) { st.Splits++ })
		if err := s.readShard(ctx, query, all, from, n/2); err != nil {
			return err
		}
		return s.readShard(ctx, query, all, from+n/2, n-n/2)
	}
	if err != nil {
		return err
	}
	part.commit()
	s.client.count(func(st *metrics.Stats) { st.Invalid += part.bad })
	return nil
}

// grid joins the shards of a range query.
type grid struct {
	start  time.Time
	step   time.Duration
	points int
	byName map[string]*metrics.LabelledSeries
}

func (g *grid) at(i int) time.Time { return g.start.Add(time.Duration(i) * g.step) }

func (g *grid) sorted() []metrics.LabelledSeries {
	out := make([]metrics.LabelledSeries, 0, len(g.byName))
	for _, name := range slices.Sorted(maps.Keys(g.byName)) {
		out = append(out, *g.byName[name])
	}
	return out
}

// shard is one answer on the cells [from, from+cells) of the grid.
type shard struct {
	grid        *grid
	from, cells int
	maxCells    int
	found       []found
	bad         int64
}

type found struct {
	name   string
	labels metrics.Labels
	values []float64
}

func (p *shard) reset() { p.found, p.bad = p.found[:0], 0 }

func (p *shard) add(labels []label, points []point) error {
	if (len(p.found)+1)*p.cells > p.maxCells {
		return errTooMany
	}
	f := found{labels: toLabels(labels), values: appendGaps(nil, p.cells)}
	f.name = canonical(f.labels)
	cells := cellsOf(p.grid.at(p.from), p.grid.step, p.cells)
	for _, pt := range points {
		i, ok := cells.index(pt.ms)
		if !ok || math.IsNaN(pt.value) || math.IsInf(pt.value, 0) {
			p.bad++
			continue
		}
		if !series.IsGap(f.values[i]) {
			p.bad++
		}
		f.values[i] = pt.value
	}
	p.found = append(p.found, f)
	return nil
}

func (p *shard) commit() {
	for _, f := range p.found {
		whole, ok := p.grid.byName[f.name]
		if !ok {
			whole = &metrics.LabelledSeries{
				Labels: f.labels,
				Series: series.Series{Start: p.grid.start, Step: p.grid.step, Values: appendGaps(nil, p.grid.points)},
			}
			p.grid.byName[f.name] = whole
		}
		copy(whole.Values[p.from:], f.values)
	}
}

// appendGaps appends n gaps to dst.
func appendGaps(dst []float64, n int) []float64 {
	for range n {
		dst = append(dst, series.Gap())
	}
	return dst
}

// cells finds the index of a time on a grid.
type cells struct {
	start, step int64 // ms
	n           int
}

func cellsOf(start time.Time, step time.Duration, n int) cells {
	return cells{start: start.UnixMilli(), step: step.Milliseconds(), n: n}
}

func (c cells) index(ms int64) (int, bool) {
	offset := ms - c.start
	if offset < 0 || offset%c.step != 0 || offset/c.step >= int64(c.n) {
		return 0, false
	}
	return int(offset / c.step), true
}

// canonical is a unique text of a label set.
func canonical(labels metrics.Labels) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(strconv.Quote(name) + strconv.Quote(labels[name]))
	}
	return b.String()
}

func rangeParams(query string, first, last time.Time, step time.Duration) url.Values {
	return url.Values{"query": {query}, "start": {formatTime(first)}, "end": {formatTime(last)}, "step": {seconds(step)}}
}

func formatTime(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// promDuration writes d for a range selector.
func promDuration(d time.Duration) string { return strconv.FormatInt(d.Milliseconds()/1000, 10) + "s" }

// wrapQueryError names the query where the server judged it. Where there was no answer, or no right to one, the query has no
// part in that, and what it was for is the caller's to say.
func wrapQueryError(what, query string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Kind == Refused || e.Kind == TooLarge {
		return fmt.Errorf("%s %s: %w", what, truncateQuery(query), err)
	}
	return err
}

// truncateQuery keeps a query short in an error.
func truncateQuery(query string) string {
	const most = 100
	if len(query) <= most {
		return query
	}
	return query[:most] + "..."
}
