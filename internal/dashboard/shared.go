// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/recovery"
)

// Shared is a value that is read for all callers together: it is read when it is first needed and when it has expired, once at a time.
// After an error, the last value stays with the error as its reason for being stale.
type Shared[T any] struct {
	// Read reads the value. Its context ends after Timeout, and not with the request that needs the value.
	Read    func(ctx context.Context) (*T, error)
	TTL     time.Duration
	Timeout time.Duration
	// Patience is how long a caller waits for a first value before it gets Starting; later ones get the last value instead.
	Patience time.Duration
	Clock    clock.Clock

	mu      sync.Mutex
	value   *T
	readAt  time.Time
	err     error
	pending chan struct{}
}

// Get returns the value, the time at which it was read, and why it is stale; empty if it is not.
func (s *Shared[T]) Get(ctx context.Context) (value *T, at time.Time, stale string, err error) {
	s.mu.Lock()
	if s.fresh() {
		defer s.mu.Unlock()

		return s.result()
	}

	if s.pending == nil {
		s.pending = make(chan struct{})
		go s.refresh(context.WithoutCancel(ctx), s.pending)
	}

	// The read goes on after this request has lost its patience; the next one gets its result.
	pending := s.pending
	s.mu.Unlock()

	patience := s.Clock.NewTimer(s.Patience)
	defer patience.Stop()

	select {
	case <-pending:
	case <-patience.C():
	case <-ctx.Done():
		return nil, time.Time{}, "", context.Cause(ctx)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return s.result()
}

// Expire makes the next caller read the value again.
func (s *Shared[T]) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.readAt = time.Time{}
}

func (s *Shared[T]) fresh() bool {
	return s.value != nil && s.err == nil && s.Clock.Since(s.readAt) < s.TTL
}

func (s *Shared[T]) result() (value *T, at time.Time, stale string, err error) {
	if s.value == nil && s.err != nil {
		return nil, time.Time{}, "", s.err
	}

	if s.value != nil {
		if s.err != nil {
			stale = "the last attempt to read it failed: " + FailureOf(s.err).Body.Message
		}

		return s.value, s.readAt, stale, nil
	}

	return nil, time.Time{}, "", Starting("the data are being read for the first time")
}

func (s *Shared[T]) refresh(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()

	// No request waits in this goroutine, so nothing else recovers its panics.
	value, err := recovery.Value(ctx, func() (*T, error) { return s.Read(ctx) })
	s.mu.Lock()
	defer s.mu.Unlock()

	s.err = err

	if err == nil {
		s.value = value
		s.readAt = s.Clock.Now()
	}

	s.pending = nil
	close(done)
}
