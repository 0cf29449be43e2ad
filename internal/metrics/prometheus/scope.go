// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
)

// maxMatcher bounds the list of namespaces in one query, in bytes. VictoriaMetrics rejects queries above 16 KiB.
const maxMatcher = 8 << 10

// scope selects namespaces.
type scope struct {
	// names is sorted.
	names []string
	// all is set where names lists every namespace, so that a query needs no matcher.
	all bool
	// without are namespaces that a query for all leaves out, sorted.
	without []string
}

// matchers returns those of a query for all namespaces.
func (in scope) matchers() []Matcher {
	var out []Matcher
	for _, name := range in.without {
		out = append(out, Matcher{Label: "namespace", Op: "!=", Value: name})
	}

	return out
}

// newScope returns the scope of the requested namespaces; none means all.
func newScope(requested []string) scope {
	names := sortedSet(requested)
	return scope{names: names, all: len(names) == 0}
}

// sortedSet returns the distinct values, sorted.
func sortedSet(values []string) []string { return slices.Compact(slices.Sorted(slices.Values(values))) }

// with adds namespaces that were counted, where the scope is all: some servers list labels of recent data only.
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

	return scope{names: sortedSet(names), all: true, without: in.without}
}

// covers reports whether the scope includes another one.
func (in scope) covers(other scope) bool {
	if in.all || other.all {
		return in.all
	}

	for _, ns := range other.names {
		if _, found := slices.BinarySearch(in.names, ns); !found {
			return false
		}
	}

	return true
}

// eachBatch runs a query for the namespaces of the scope: for all at once, in lists that are short enough for a query, or in halves of them
// where the server rejects the query as too large. run receives the matchers that restrict the query and must not keep results of a failed
// query.
func (q *queries) eachBatch(ctx context.Context, in scope, run func(matchers []Matcher) error) error {
	return q.eachBatchOr(ctx, in, run, func(_ string, err error) error { return err })
}

// eachBatchOr is eachBatch where a single namespace that is too large need not end the request: tooLarge returns the error, or nil to go on.
func (q *queries) eachBatchOr(
	ctx context.Context, in scope, run func(matchers []Matcher) error, tooLarge func(namespace string, err error) error,
) error {
	if in.all {
		if err := run(in.matchers()); err == nil || !isTooLarge(err) || len(in.names) == 0 {
			return err
		}

		q.client.count(func(s *metrics.Stats) { s.Splits++ })
	}

	for batches := batchNames(in.names); len(batches) > 0; {
		batch := batches[0]
		batches = batches[1:]

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		err := run([]Matcher{OneOf("namespace", batch)})
		// A batch that is too large is replaced by its halves, which run next.
		n := len(batch)
		if isTooLarge(err) && n > 1 {
			q.client.count(func(s *metrics.Stats) { s.Splits++ })
			batches = append([][]string{batch[:n/2], batch[n/2:]}, batches...)
			continue
		}

		if isTooLarge(err) {
			err = tooLarge(batch[0], err)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// batchNames cuts a list so that each part fits into one matcher.
func batchNames(names []string) [][]string {
	var out [][]string
	from, length := 0, 0
	for i, n := range names {
		if length+len(n)+1 > maxMatcher && i > from {
			out = append(out, names[from:i])
			from = i
			length = 0
		}

		length += len(n) + 1
	}

	if from < len(names) {
		out = append(out, names[from:])
	}

	return out
}

// scopeOf returns the requested namespaces, or else all that have series of the selector in the window. It reads the index of the server: a
// count on a grid would miss jobs that live between its points. Where the endpoint of the index is unavailable it sends a query.
func (q *queries) scopeOf(ctx context.Context, requested []string, sel string, from, to time.Time) (scope, error) {
	if len(requested) > 0 {
		return newScope(requested), nil
	}

	var names []string
	params := url.Values{"match[]": {sel}, "start": {formatTime(from)}, "end": {formatTime(to)}}

	err := q.client.fetchJSON(ctx, labelValuesPath, params, &names)
	if isEndpointUnavailable(err) {
		var list []metrics.Sample
		query := fmt.Sprintf("count by (namespace) (count_over_time(%s[%s]))", sel, promDuration(to.Sub(from)))

		list, err = q.Instant(ctx, query, to)
		for _, sample := range list {
			names = append(names, sample.Labels["namespace"])
		}
	}

	if err != nil {
		return scope{}, fmt.Errorf("listing namespaces: %w", err)
	}

	names = slices.DeleteFunc(names, func(n string) bool { return n == "" })
	return scope{names: sortedSet(names), all: true}, nil
}

// newestWindow bounds the search for the newest sample where there is none now.
const newestWindow = 3 * day

// newest returns the last time, accurate to minutes, at which a selector had a sample; zero where it had none for days.
func (q *queries) newest(ctx context.Context, sel string, now time.Time) (time.Time, error) {
	now = now.Truncate(time.Second)
	list, err := q.Range(ctx, "count("+sel+")", metrics.Window{Start: now.Add(-newestWindow), End: now.Add(time.Second), Step: probeFine})
	if err != nil {
		return time.Time{}, err
	}

	var last time.Time
	for _, l := range list {
		for i, v := range l.Values {
			if t := l.Time(i); v > 0 && t.After(last) {
				last = t
			}
		}
	}

	return last, nil
}
