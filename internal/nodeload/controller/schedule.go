// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"crane.io/crane/pkg/nodeload"
)

const (
	// firstRetry and its doublings up to the period are the pauses after a metric that could not be read.
	firstRetry = 10 * time.Second
	// together is how much earlier than it is due a metric is read along with others, so that a node gets one patch.
	together = time.Second
)

// schedule says when which metric is read. Metrics are due on a grid of their period from one common start, so that
// those whose periods are multiples of each other fall into one round for ever.
type schedule struct {
	start    time.Time
	next     map[string]time.Time
	failures map[string]int // in a row
}

func newSchedule(start time.Time) *schedule {
	return &schedule{start: start, next: map[string]time.Time{}, failures: map[string]int{}}
}

// due returns the metrics to read now. One that is new is due at once. Where others are due, so is one that somebody
// lacks: a node that is young need not wait hours for a metric that is read every few hours.
func (s *schedule) due(list []nodeload.Metric, now time.Time, lacks func(metric string) bool) []int {
	var out, rest []int
	for i, m := range list {
		if next, known := s.next[m.Name]; !known || !next.After(now.Add(together)) {
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

// succeeded sets when the metric is read again.
func (s *schedule) succeeded(m nodeload.Metric, now time.Time) {
	s.failures[m.Name] = 0
	s.next[m.Name] = s.start.Add((now.Add(together).Sub(s.start)/m.Period + 1) * m.Period)
}

// failed sets when it is tried again, and tells whether this was the first failure in a row.
func (s *schedule) failed(m nodeload.Metric, now time.Time) (first bool) {
	pause := m.Period
	if n := s.failures[m.Name]; n < 20 {
		pause = min(pause, firstRetry<<n)
	}
	s.failures[m.Name]++
	s.next[m.Name] = now.Add(pause)
	return s.failures[m.Name] == 1
}

// earliest is when there is something to do again.
func (s *schedule) earliest(list []nodeload.Metric, now time.Time) time.Time {
	first := now.Add(time.Hour)
	for _, m := range list {
		next, known := s.next[m.Name]
		if !known {
			return now
		}
		if next.Before(first) {
			first = next
		}
	}
	return first
}

// keep forgets metrics that the policy no longer has.
func (s *schedule) keep(list []nodeload.Metric) {
	kept := make(map[string]bool, len(list))
	for _, m := range list {
		kept[m.Name] = true
	}
	for name := range s.next {
		if !kept[name] {
			delete(s.next, name)
			delete(s.failures, name)
		}
	}
}
