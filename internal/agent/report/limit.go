// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import "time"

const (
	// apart is the least time between two events of the same thing: a rule may come and go each second.
	apart = time.Minute
	// remembered bounds the things that are remembered; past it events are dropped.
	remembered = 2048
)

// limiter lets each thing through once in a while.
type limiter struct{ last map[string]mention }

type mention struct {
	at time.Time
	// kept is how often it was not let through since.
	kept int
}

// allow tells whether an event may be written now, and how many of its kind were not since the last one.
func (l *limiter) allow(key string, now time.Time) (ok bool, kept int) {
	if l.last == nil {
		l.last = map[string]mention{}
	}
	m, known := l.last[key]
	if since := now.Sub(m.at); known && since >= 0 && since < apart {
		m.kept++
		l.last[key] = m
		return false, 0
	}
	if !known && len(l.last) >= remembered {
		l.forget(now)
		if len(l.last) >= remembered {
			return false, 0
		}
	}
	l.last[key] = mention{at: now}
	return true, m.kept
}

// forget drops what could be told of again.
func (l *limiter) forget(now time.Time) {
	for key, m := range l.last {
		if since := now.Sub(m.at); since < 0 || since >= apart {
			delete(l.last, key)
		}
	}
}
