// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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
	a := u
	b := u

	endings := u.endings
	if endings == "" {
		endings = nameEndings
	}

	// Namespaces are halved first: the halves then select different series.
	switch {
	case len(u.namespaces) > 1:
		n := len(u.namespaces) / 2
		a.namespaces = u.namespaces[:n]
		b.namespaces = u.namespaces[n:]
	case u.cells > 1 && (!bySeries || len(endings) == 1):
		a.cells = u.cells / 2
		b.from = u.from.Add(time.Duration(a.cells) * step)
		b.cells = u.cells - a.cells

	case len(endings) > 1:
		n := len(endings) / 2
		a.endings = endings[:n]
		b.endings = endings[n:]
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
			sum += v
			n++
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
	shared := []string(nil)
	sum := 0
	length := 0

	flush := func() {
		if len(shared) > 0 {
			out = append(out, shards(usageQuery{from: from, cells: cellCount, namespaces: shared}, sum, step, cfg)...)
		}

		shared = nil
		sum = 0
		length = 0
	}

	for _, ns := range namespaces {
		n := est.samples(ns, from, cellCount, step)
		// Small namespaces share a query until it would have too many samples or too long a matcher.
		if sum+n > cfg.MaxSamples || length+len(ns)+1 > maxMatcher {
			flush()
		}

		shared = append(shared, ns)
		sum += n
		length = length + len(ns) + 1
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
		a := u.cells * i / parts
		b := u.cells * (i + 1) / parts
		part := u
		part.from = u.from.Add(time.Duration(a) * step)
		part.cells = b - a
		out = append(out, part)
	}

	return out
}

const (
	// defaultInterval applies where no container has two samples. It is the default of the usual installations, rounded up.
	defaultInterval = time.Minute
	// longestInterval is the longest time between two samples that counts as a scrape interval.
	longestInterval = 15 * time.Minute
	// intervalLifetime is how long a measured interval is used.
	intervalLifetime = time.Hour
	// intervalSeries is the number of containers whose samples are measured.
	intervalSeries = 5
)

// scrapeIntervals are the times between samples of containers.
type scrapeIntervals struct {
	// usual is that of most containers.
	usual time.Duration
	// slow is that of containers that are scraped by a job with a clearly longer interval; 0 for none.
	slow time.Duration
}

// intervalDetector measures the scrape intervals of container metrics. It is safe for concurrent use.
type intervalDetector struct {
	*queries

	mu sync.Mutex
	// value was measured at measuredAt, which is zero before the first measurement.
	value      scrapeIntervals
	measuredAt time.Time
}

// scrapeInterval returns the median time between raw samples of a few containers shortly before at, or the longer one that they had some
// days earlier. It measures at most once per hour. measured is false where there are no samples, and value is then the default.
func (d *intervalDetector) scrapeInterval(ctx context.Context, metric string, at time.Time) (value scrapeIntervals, measured bool, err error) {
	d.mu.Lock()
	value, measuredAt := d.value, d.measuredAt
	d.mu.Unlock()

	if !measuredAt.IsZero() && d.now().Sub(measuredAt) < intervalLifetime {
		return value, true, nil
	}

	// A day is tried where the last hour has no samples.
	for _, window := range []time.Duration{time.Hour, day} {
		usual, err := d.measure(ctx, metric, at, window)
		if err != nil {
			return scrapeIntervals{}, false, fmt.Errorf("finding the scrape interval: %w", err)
		}

		if usual == 0 {
			continue
		}

		// A longer interval of earlier days wins, or rates of these days would be lost.
		if value, err = d.longestRecent(ctx, metric, at, usual); err != nil {
			return scrapeIntervals{}, false, fmt.Errorf("finding the scrape interval of earlier days: %w", err)
		}

		d.mu.Lock()
		d.value = value
		d.measuredAt = d.now()
		d.mu.Unlock()

		return value, true, nil
	}

	return scrapeIntervals{usual: defaultInterval}, false, nil
}

// slowestShare is the share of containers whose longer interval is no job's, but that of missed scrapes.
const slowestShare = 0.01

// longestRecent returns the interval of earlier days where it was clearly longer than current, else current, and the one of the containers
// that are scraped least often. A window that covers four scrapes of most containers today may cover none of earlier days or of another
// job, and their rates would be lost silently. One query counts the samples within an hour: of the container with most samples on each
// of some days, and of almost all containers now, each by its best series.
func (d *intervalDetector) longestRecent(ctx context.Context, metric string, at time.Time, current time.Duration) (scrapeIntervals, error) {
	const clearly = 1.5 // Counts vary by a sample, and containers start and stop.
	const most, slowest = "most", "slowest"
	sel := d.expr.containers(metric)
	var containers, earlier []string
	for _, share := range []struct {
		look     string
		quantile float64
	}{{most, 0.5}, {slowest, slowestShare}} {
		containers = append(containers, fmt.Sprintf(`label_replace(quantile(%g, max by (%s) (count_over_time(%s[1h])) and max by (%s) (last_over_time(%s[%s] offset 45m))), "look", %q, "", "")`,
			share.quantile, byContainer, sel, byContainer, sel, promDuration(longestInterval), share.look))
	}

	for _, days := range []time.Duration{1, 7, 13} {
		earlier = append(earlier, fmt.Sprintf(`label_replace(max(count_over_time(%s[1h] offset %s)), "look", "%d", "", "")`, sel, promDuration(days*day), days))
	}

	found, err := d.Instant(ctx, strings.Join(append(containers, earlier...), " or "), at)
	// A server that cannot group all containers is asked about the earlier days alone.
	if isTooLarge(err) {
		found, err = d.Instant(ctx, strings.Join(earlier, " or "), at)
	}

	if err != nil {
		return scrapeIntervals{}, err
	}

	intervals := map[string]time.Duration{}
	for _, c := range found {
		if c.Value >= float64(time.Hour/longestInterval) {
			intervals[c.Labels["look"]] = time.Duration(float64(time.Hour) / c.Value).Round(time.Second)
		}
	}

	isLonger := func(a, b time.Duration) bool { return float64(a) > clearly*float64(b) }
	// The few containers whose samples were read may be those of the slower job.
	out := scrapeIntervals{usual: current}
	if typical := intervals[most]; typical > 0 && isLonger(current, typical) {
		out.usual = typical
	}

	slow := intervals[slowest]
	delete(intervals, most)
	delete(intervals, slowest)
	for _, interval := range intervals {
		if interval > out.usual && isLonger(interval, current) {
			out.usual = interval
		}
	}

	if isLonger(slow, out.usual) {
		out.slow = slow
	}

	return out, nil
}

// measure selects a few containers and reads their raw samples. It returns 0 where there are no samples.
func (d *intervalDetector) measure(ctx context.Context, metric string, at time.Time, window time.Duration) (time.Duration, error) {
	pick := fmt.Sprintf("topk(%d, last_over_time(%s[%s]))", intervalSeries, d.expr.containers(metric), promDuration(window))
	few, err := d.Instant(ctx, pick, at)
	if err != nil || len(few) == 0 {
		return 0, err
	}

	pods := map[string]bool{}
	for _, sample := range few {
		pods[sample.Labels["pod"]] = true
	}

	raw := &distances{}
	query := d.expr.containers(metric, OneOf("pod", slices.Sorted(maps.Keys(pods)))) + "[" + promDuration(window) + "]"
	if err := d.client.query(ctx, instantPath, instantParams(query, at), "matrix", raw); err != nil {
		return 0, wrapQueryError("query", query, err)
	}

	return raw.median(), nil
}

// distances collects the times between neighboring samples, in milliseconds.
type distances struct{ ms []int64 }

func (d *distances) reset() { d.ms = d.ms[:0] }

func (d *distances) add(_ []label, points []point) error {
	for i := 1; i < len(points); i++ {
		if gap := points[i].ms - points[i-1].ms; gap > 0 && gap <= longestInterval.Milliseconds() {
			d.ms = append(d.ms, gap)
		}
	}

	return nil
}

// median returns the median rounded to a second, at least one second, as scrapes jitter by milliseconds; 0 without samples.
func (d *distances) median() time.Duration {
	if len(d.ms) == 0 {
		return 0
	}

	slices.Sort(d.ms)
	median := time.Duration(d.ms[len(d.ms)/2]) * time.Millisecond
	return max(time.Second, median.Round(time.Second))
}
