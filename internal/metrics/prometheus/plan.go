// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"time"

	"crane.io/crane/pkg/series"
)

// usageQuery is one query of usage: some namespaces on the cells [from, from+cells) of a day.
type usageQuery struct {
	from       time.Time
	cells      int
	namespaces []string
	// endings restricts pods to names that end in one of these characters; empty means all.
	endings string
}

// nameEndings are the characters in which the name of a pod can end.
const nameEndings = "abcdefghijklmnopqrstuvwxyz0123456789"

func (u usageQuery) matchers() []Matcher {
	out := []Matcher{OneOf("namespace", u.namespaces)}
	if u.endings != "" {
		out = append(out, Matcher{Label: "pod", Op: "=~", Value: ".*[" + u.endings + "]"})
	}
	return out
}

func (u usageQuery) end(step time.Duration) time.Time {
	return u.from.Add(time.Duration(u.cells) * step)
}

// split halves a query that the server rejected as too large. Limits on the number of series require fewer pods, all other limits a shorter
// time; a query that cannot be halved one way is halved the other way. The halves stay in time order. ok is false where neither is possible.
func (u usageQuery) split(step time.Duration, bySeries bool) (halves []usageQuery, ok bool) {
	a, b := u, u
	endings := u.endings
	if endings == "" {
		endings = nameEndings
	}
	switch {
	case len(u.namespaces) > 1:
		n := len(u.namespaces) / 2
		a.namespaces, b.namespaces = u.namespaces[:n], u.namespaces[n:]
	case u.cells > 1 && (!bySeries || len(endings) == 1):
		a.cells = u.cells / 2
		b.from, b.cells = u.from.Add(time.Duration(a.cells)*step), u.cells-a.cells
	case len(endings) > 1:
		n := len(endings) / 2
		a.endings, b.endings = endings[:n], endings[n:]
	default:
		return nil, false
	}
	return []usageQuery{a, b}, true
}

// estimates is the number of containers of each namespace over time: about one value per hour.
type estimates struct {
	byNamespace map[string]series.Series
	// counted is false where the server rejected the count, so that namespaces without a value may have containers.
	counted bool
}

// samples estimates the number of samples of a namespace on the cells of a day. It returns at least one per cell, as estimates miss
// containers that live between two of them.
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

// planQueries cuts days into queries of at most maxSamples samples and maxPoints cells. Small namespaces share a query, large ones have
// several consecutive ones. Days are in order and, within a day, namespaces by name.
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

// shards cuts a query by time into equal parts, as few as both limits allow.
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
