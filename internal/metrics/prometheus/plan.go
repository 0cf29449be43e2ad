// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// maxMatcher bounds the list of namespaces in one query, in bytes; VictoriaMetrics refuses queries above 16 KiB.
const maxMatcher = 8 << 10

// usageQuery is one query of usage: some namespaces on the cells [from, from+cells) of a day.
type usageQuery struct {
	from       time.Time
	cells      int
	namespaces []string
	// endings restricts the pods to names that end in one of these characters; empty means all.
	endings string
}

// nameEndings are the characters that a pod's name may end in.
const nameEndings = "abcdefghijklmnopqrstuvwxyz0123456789"

func (u usageQuery) matchers() []Matcher {
	out := []Matcher{oneOf("namespace", u.namespaces)}
	if u.endings != "" {
		out = append(out, Matcher{Label: "pod", Op: "=~", Value: ".*[" + u.endings + "]"})
	}
	return out
}

func (u usageQuery) end(step time.Duration) time.Time {
	return u.from.Add(time.Duration(u.cells) * step)
}

// split halves a unit that the server found too large. Limits on the number of series call for fewer pods, all other
// limits for less time; what cannot be halved one way is halved the other. The halves stay in time order.
func (u usageQuery) split(step time.Duration, bySeries bool) ([]usageQuery, bool) {
	if n := len(u.namespaces); n > 1 {
		a, b := u, u
		a.namespaces, b.namespaces = u.namespaces[:n/2], u.namespaces[n/2:]
		return []usageQuery{a, b}, true
	}
	if u.cells > 1 && !bySeries {
		a, b := u, u
		a.cells = u.cells / 2
		b.from, b.cells = u.from.Add(time.Duration(a.cells)*step), u.cells-a.cells
		return []usageQuery{a, b}, true
	}
	endings := u.endings
	if endings == "" {
		endings = nameEndings
	}
	if n := len(endings); n > 1 {
		a, b := u, u
		a.endings, b.endings = endings[:n/2], endings[n/2:]
		return []usageQuery{a, b}, true
	}
	if u.cells > 1 {
		return u.split(step, false)
	}
	return nil, false
}

// estimates is how many containers each namespace has over time: one value per hour or so.
type estimates struct {
	byNamespace map[string]series.Series
	// counted is false where the server refused to count, so that what is missing may be there all the same.
	counted bool
}

// samples estimates how many samples a namespace has on the cells of a day, at least one per cell: what lives only
// between two estimates is not seen by them.
func (e estimates) samples(namespace string, from time.Time, cells int, step time.Duration) int {
	s := e.byNamespace[namespace]
	to := from.Add(time.Duration(cells) * step)
	sum, n := 0.0, 0
	for i, v := range s.Values {
		if t := s.Time(i); t.Add(s.Step).After(from) && t.Before(to) && !series.IsGap(v) {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return cells
	}
	return max(cells, int(sum/float64(n)*float64(cells)))
}

// planQueries cuts days into units of at most maxSamples samples and maxPoints cells. Small namespaces share a query,
// large ones have several, one after the other in time. Days come in order and, within a day, namespaces by name.
func planQueries(namespaces []string, from, to time.Time, step time.Duration, est estimates, cfg Config) []usageQuery {
	var out []usageQuery
	for start := from; start.Before(to); {
		end := start.Truncate(day).Add(day)
		if end.After(to) {
			end = to
		}
		out = append(out, planDay(namespaces, start, int(end.Sub(start)/step), step, est, cfg)...)
		start = end
	}
	return out
}

func planDay(namespaces []string, from time.Time, cellCount int, step time.Duration, est estimates, cfg Config) []usageQuery {
	var out []usageQuery
	shared, sum, length := []string(nil), 0, 0
	flush := func() {
		if len(shared) > 0 {
			out = append(out, shards(usageQuery{from: from, cells: cellCount, namespaces: shared}, sum, step, cfg)...)
		}
		shared, sum, length = nil, 0, 0
	}
	for _, ns := range namespaces {
		n := est.samples(ns, from, cellCount, step)
		if sum+n > cfg.MaxSamples || length+len(ns)+1 > maxMatcher {
			flush()
		}
		shared, sum, length = append(shared, ns), sum+n, length+len(ns)+1
	}
	flush()
	return out
}

// shards cuts a unit by time into equal parts, as few as both limits allow.
func shards(u usageQuery, samples int, step time.Duration, cfg Config) []usageQuery {
	parts := max(1, (samples+cfg.MaxSamples-1)/cfg.MaxSamples, (u.cells+cfg.MaxPoints-1)/cfg.MaxPoints)
	parts = min(parts, u.cells)
	out := make([]usageQuery, 0, parts)
	for i := range parts {
		a, b := u.cells*i/parts, u.cells*(i+1)/parts
		part := u
		part.from, part.cells = u.from.Add(time.Duration(a)*step), b-a
		out = append(out, part)
	}
	return out
}

// estimate counts containers by namespace, once for all namespaces and days. Estimates only save the server from
// queries that it would refuse, so a server that refuses even this one is read without.
func (s *Source) estimate(ctx context.Context, metric string, in scope, w metrics.Window) (estimates, error) {
	est := estimates{byNamespace: map[string]series.Series{}}
	w.Step = max(w.Step, min(time.Hour, w.End.Sub(w.Start)/4).Truncate(time.Second))
	err := s.eachBatch(ctx, in, func(own []Matcher) error {
		query := fmt.Sprintf("count by (namespace) (max by (namespace, pod, container) (%s))", s.containers(metric, own...))
		counts, err := s.Range(ctx, query, w)
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

// scope is which namespaces a query is about.
type scope struct {
	// names lists them.
	names []string
	// all tells that there are no others, so that a query can do without the list.
	all bool
}

// with adds the namespaces that were counted, if the scope is all: some servers look for labels in recent data only.
func (in scope) with(est estimates) scope {
	if !in.all {
		return in
	}
	names := slices.Clone(in.names)
	for ns := range est.byNamespace {
		if ns != "" {
			names = append(names, ns)
		}
	}
	slices.Sort(names)
	return scope{names: slices.Compact(names), all: true}
}

// eachBatch runs a query for the namespaces of the scope: for all at once, or in lists short enough for a query, or in
// halves of them where the server finds the query too large. run is given the matchers that restrict the query; it
// keeps nothing of a query that failed.
func (s *Source) eachBatch(ctx context.Context, in scope, run func(own []Matcher) error) error {
	if in.all {
		if err := run(nil); err == nil || !isTooLarge(err) || len(in.names) < 2 {
			return err
		}
		s.client.count(func(st *metrics.Stats) { st.Splits++ })
	}
	for batches := batchNames(in.names); len(batches) > 0; {
		batch := batches[0]
		batches = batches[1:]
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		err := run([]Matcher{oneOf("namespace", batch)})
		if n := len(batch); isTooLarge(err) && n > 1 {
			s.client.count(func(st *metrics.Stats) { st.Splits++ })
			batches = append([][]string{batch[:n/2], batch[n/2:]}, batches...)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// scopeOf lists the namespaces to read: those asked for, or else all that have series of the selector in the window,
// from the index of the server: a count on a grid would miss jobs that live between its points. Servers that keep that
// endpoint closed are asked by a query.
func (s *Source) scopeOf(ctx context.Context, asked []string, sel string, from, to time.Time) (scope, error) {
	if names := slices.Compact(slices.Sorted(slices.Values(asked))); len(names) > 0 {
		return scope{names: names}, nil
	}
	var names []string
	params := url.Values{"match[]": {sel}, "start": {formatTime(from)}, "end": {formatTime(to)}}
	err := s.client.fetchJSON(ctx, labelValuesPath, params, &names)
	if isEndpointUnavailable(err) {
		names, err = s.namespacesByQuery(ctx, sel, from, to)
	}
	if err != nil {
		return scope{}, fmt.Errorf("listing namespaces: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "" })
	slices.Sort(names)
	return scope{names: slices.Compact(names), all: true}, nil
}

func (s *Source) namespacesByQuery(ctx context.Context, sel string, from, to time.Time) ([]string, error) {
	query := fmt.Sprintf("count by (namespace) (count_over_time(%s[%s]))", sel, promDuration(to.Sub(from)))
	list, err := s.Instant(ctx, query, to)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, sample := range list {
		names = append(names, sample.Labels["namespace"])
	}
	return names, nil
}

// fetchJSON reads an endpoint whose data is small. It is always asked by GET: some of them know no POST.
func (c *client) fetchJSON(ctx context.Context, endpoint string, params url.Values, data any) error {
	return c.call(ctx, request{endpoint: endpoint, params: params, get: true}, func(r io.Reader) error {
		raw, err := io.ReadAll(io.LimitReader(r, maxSmall+1))
		if err != nil {
			return err
		}
		if len(raw) > maxSmall {
			return &malformedError{what: fmt.Sprintf("an answer of more than %d bytes", maxSmall)}
		}
		var body struct {
			Status    string          `json:"status"`
			ErrorType string          `json:"errorType"`
			Error     string          `json:"error"`
			Data      json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(raw, &body); err != nil {
			return &malformedError{what: sanitize(err.Error())}
		}
		if body.Status != "success" {
			return errorFromStatus(200, body.ErrorType, sanitize(body.Error))
		}
		if err := json.Unmarshal(body.Data, data); err != nil {
			return &malformedError{what: sanitize(err.Error())}
		}
		return nil
	})
}

// maxSmall bounds the answers that are read whole.
const maxSmall = 64 << 20

// batchNames cuts a list so that each part fits into one matcher.
func batchNames(names []string) [][]string {
	var out [][]string
	from, length := 0, 0
	for i, n := range names {
		if length+len(n)+1 > maxMatcher && i > from {
			out = append(out, names[from:i])
			from, length = i, 0
		}
		length += len(n) + 1
	}
	if from < len(names) {
		out = append(out, names[from:])
	}
	return out
}
