// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import "time"

const (
	// minEventInterval is the least time between two events of the same kind and object.
	minEventInterval = time.Minute
	// maxTracked bounds the tracked keys; beyond it events are dropped.
	maxTracked = 2048
)

// eventLimiter limits the rate of events by key.
type eventLimiter struct{ last map[string]lastEvent }

type lastEvent struct {
	at time.Time
	// suppressed is the number of events dropped since.
	suppressed int
}

// allow reports whether an event may be written, and how many of its key were dropped since the last one.
func (l *eventLimiter) allow(key string, now time.Time) (ok bool, kept int) {
	if l.last == nil {
		l.last = map[string]lastEvent{}
	}
	m, known := l.last[key]
	if since := now.Sub(m.at); known && since >= 0 && since < minEventInterval {
		m.suppressed++
		l.last[key] = m
		return false, 0
	}
	if !known && len(l.last) >= maxTracked {
		l.forget(now)
		if len(l.last) >= maxTracked {
			return false, 0
		}
	}
	l.last[key] = lastEvent{at: now}
	return true, m.suppressed
}

// forget drops expired keys.
func (l *eventLimiter) forget(now time.Time) {
	for key, m := range l.last {
		if since := now.Sub(m.at); since < 0 || since >= minEventInterval {
			delete(l.last, key)
		}
	}
}
