// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"crane.io/crane/internal/component/backoff"
	"crane.io/crane/pkg/nodeload"
)

const (
	// firstRetry is the first backoff after a failed read; it doubles up to the period.
	firstRetry = 10 * time.Second
	// alignWindow is how much earlier than due a metric is read along with others, so that a node gets one patch.
	alignWindow = time.Second
)

// schedule determines when each metric is read. Metrics are due at multiples of their period from a common start, so
// that periods that are multiples of each other always coincide.
type schedule struct {
	start    time.Time
	next     map[string]time.Time
	failures map[string]int // consecutive failures
}

func newSchedule(start time.Time) *schedule {
	return &schedule{start: start, next: map[string]time.Time{}, failures: map[string]int{}}
}

// due returns the metrics to read now. A new metric is due at once. When others are due, a metric that lacks reports
// missing is due as well: a new node need not wait for the next reading of a slow metric.
func (s *schedule) due(list []nodeload.Metric, now time.Time, lacks func(metric string) bool) []int {
	var out, rest []int
	for i, m := range list {
		if next, ok := s.next[m.Name]; !ok || !next.After(now.Add(alignWindow)) {
			out = append(out, i)
		} else if s.failures[m.Name] == 0 {
			rest = append(rest, i)
		}
	}

	if len(out) == 0 {
		return nil
	}

	for _, i := range rest {
		if lacks(list[i].Name) {
			out = append(out, i)
		}
	}

	slices.Sort(out)
	return out
}

// succeeded sets the next reading of a metric.
func (s *schedule) succeeded(m nodeload.Metric, now time.Time) {
	s.failures[m.Name] = 0
	s.next[m.Name] = s.start.Add((now.Add(alignWindow).Sub(s.start)/m.Period + 1) * m.Period)
}

// failed sets the retry of a metric and reports whether this was the first failure in a row.
func (s *schedule) failed(m nodeload.Metric, now time.Time) (first bool) {
	s.failures[m.Name]++
	delays := backoff.Exponential{First: firstRetry, Last: m.Period}
	s.next[m.Name] = now.Add(delays.After(s.failures[m.Name]))

	return s.failures[m.Name] == 1
}

// earliest returns the time of the next reading.
func (s *schedule) earliest(list []nodeload.Metric, now time.Time) time.Time {
	first := now.Add(time.Hour)
	for _, m := range list {
		next, ok := s.next[m.Name]
		if !ok {
			return now
		}

		if next.Before(first) {
			first = next
		}
	}

	return first
}

// retain drops metrics that are not in the policy.
func (s *schedule) retain(list []nodeload.Metric) {
	retained := make(map[string]bool, len(list))
	for _, m := range list {
		retained[m.Name] = true
	}

	for name := range s.next {
		if !retained[name] {
			delete(s.next, name)
			delete(s.failures, name)
		}
	}
}
