// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Scrape intervals. defaultInterval stands in where no container has two samples; it is the default of the usual
// installations, rounded up.
const (
	defaultInterval = time.Minute
	longestInterval = 15 * time.Minute
	intervalExpires = time.Hour
	intervalSeries  = 5
)

// interval is a detected scrape interval and when it was detected.
type interval struct {
	value    time.Duration
	measured bool // false: there was nothing to measure
	at       time.Time
}

// scrapeInterval is the median distance between raw samples of a few containers shortly before at, or the longer one
// that they had some days earlier. It is measured once an hour at most. measured is false where there is nothing to
// measure, and the value is then an assumption.
func (s *Source) scrapeInterval(ctx context.Context, metric string, at time.Time) (value time.Duration, measured bool, err error) {
	s.mu.Lock()
	known := s.interval
	s.mu.Unlock()
	if known.measured && s.now().Sub(known.at) < intervalExpires {
		return known.value, true, nil
	}
	for _, window := range []time.Duration{time.Hour, day} {
		d, err := s.measureInterval(ctx, metric, at, window)
		if err != nil {
			return 0, false, fmt.Errorf("finding the scrape interval: %w", err)
		}
		if d == 0 {
			continue
		}
		if d, err = s.longerBefore(ctx, metric, at, d); err != nil {
			return 0, false, fmt.Errorf("finding the scrape interval of earlier days: %w", err)
		}
		s.mu.Lock()
		s.interval = interval{value: d, measured: true, at: s.now()}
		s.mu.Unlock()
		return d, true, nil
	}
	return defaultInterval, false, nil
}

// longerBefore returns the interval of earlier days where it was clearly longer than d, else d. A window that holds four
// of the scrapes of now may hold none of those of before, and their rates would be lost without a word. One query counts
// the samples of the best-scraped container within an hour of each of those days.
func (s *Source) longerBefore(ctx context.Context, metric string, at time.Time, d time.Duration) (time.Duration, error) {
	const clearly = 1.5 // Counts are off by a sample, and containers come and go.
	var looks []string
	for _, days := range []time.Duration{1, 7, 13} {
		looks = append(looks, fmt.Sprintf(`label_replace(max(count_over_time(%s[1h] offset %s)), "look", "%d", "", "")`,
			s.containers(metric), promDuration(days*day), days))
	}
	counts, err := s.Instant(ctx, strings.Join(looks, " or "), at)
	if err != nil {
		return 0, err
	}
	longest := d
	for _, c := range counts {
		before := time.Duration(float64(time.Hour) / c.Value).Round(time.Second)
		if c.Value >= float64(time.Hour/longestInterval) && before > longest && float64(before) > clearly*float64(d) {
			longest = before
		}
	}
	return longest, nil
}

// measureInterval picks a few containers and reads their raw samples; 0 means that there is nothing to measure.
func (s *Source) measureInterval(ctx context.Context, metric string, at time.Time, window time.Duration) (time.Duration, error) {
	pick := fmt.Sprintf("topk(%d, last_over_time(%s[%s]))", intervalSeries, s.containers(metric), promDuration(window))
	few, err := s.Instant(ctx, pick, at)
	if err != nil || len(few) == 0 {
		return 0, err
	}
	pods := map[string]bool{}
	for _, sample := range few {
		pods[sample.Labels["pod"]] = true
	}
	raw := &distances{}
	query := s.containers(metric, oneOf("pod", slices.Sorted(maps.Keys(pods)))) + "[" + promDuration(window) + "]"
	params := url.Values{"query": {query}, "time": {formatTime(at)}}
	if err := s.client.query(ctx, instantPath, params, "matrix", raw); err != nil {
		return 0, wrapQueryError("query", query, err)
	}
	return raw.median(), nil
}

// distances collects the times between neighbouring samples.
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

// median is rounded to a second: scrapes jitter by milliseconds. Intervals below a second count as one.
func (d *distances) median() time.Duration {
	if len(d.ms) == 0 {
		return 0
	}
	slices.Sort(d.ms)
	median := time.Duration(d.ms[len(d.ms)/2]) * time.Millisecond
	return max(time.Second, median.Round(time.Second))
}
