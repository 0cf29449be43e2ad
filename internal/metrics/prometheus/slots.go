// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"sync"
	"time"

	"crane.io/crane/internal/metrics"
)

// longestYield is how long a request gives way to others before one at a time may run beside them.
const longestYield = 10 * time.Second

// slots limits concurrent requests. Requests of a yielding context start while no other request runs, or one at a time after a wait: a server
// is mostly busy with queries that tenants write, and answers the queries of others late beside several of them.
type slots struct {
	limit int

	mu sync.Mutex
	// others and yielding count running requests.
	others, yielding int
	// changed is closed when a request ends.
	changed chan struct{}
}

func newSlots(limit int) *slots { return &slots{limit: limit, changed: make(chan struct{})} }

// acquire waits until a request may start, and returns the function that ends it.
func (s *slots) acquire(ctx context.Context) (release func(), err error) {
	yields := metrics.Yields(ctx)
	isLate := false

	// Yielding requests wait for others, though not forever.
	var late <-chan time.Time
	if yields {
		timer := time.NewTimer(longestYield)
		defer timer.Stop()

		late = timer.C
	}

	for {
		changed, ok := s.tryStart(yields, isLate)
		if ok {
			return func() { s.end(yields) }, nil
		}

		select {
		case <-changed:
		case <-late:
			isLate = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryStart counts a request if it may start; otherwise it returns a channel that is closed when that may have changed.
func (s *slots) tryStart(yields, isLate bool) (changed <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.others+s.yielding >= s.limit:
	case yields && s.others > 0 && (!isLate || s.yielding > 0):
	case yields:
		s.yielding++
		return nil, true
	default:
		s.others++
		return nil, true
	}

	return s.changed, false
}

func (s *slots) end(yields bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if yields {
		s.yielding--
	} else {
		s.others--
	}

	close(s.changed)
	s.changed = make(chan struct{})
}
