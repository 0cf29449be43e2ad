// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"crane.io/crane/internal/metrics"
)

// TestYieldingRequestsGiveWay checks that yielding requests run while no other does, and one at a time beside others after a wait.
func TestYieldingRequestsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4)
		started := make(chan func(), 10)
		start := func(ctx context.Context) {
			go func() {
				if release, err := s.acquire(ctx); err == nil {
					started <- release
				}
			}()

			synctest.Wait()
		}

		expect := func(what string, want int) {
			t.Helper()

			synctest.Wait()
			if n := len(started); n != want {
				t.Fatalf("%s: %d requests have started, want %d", what, n, want)
			}
		}

		low := metrics.Yielding(t.Context())
		start(low)
		start(low)
		expect("two yielding ones alone", 2)
		start(t.Context())
		expect("another beside them", 3)
		start(low)
		expect("a yielding one waits", 3)

		(<-started)()
		(<-started)() // the yielding ones
		expect("it waits for the other one", 1)
		start(low)
		time.Sleep(longestYield + time.Second)
		expect("after the wait, one at a time", 2)
		(<-started)() // the other one
		expect("both run when there is no other", 2)

		for range 3 {
			start(t.Context())
		}

		expect("the limit holds for all", 4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if _, err := s.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}

		for len(started) > 0 {
			(<-started)()
			synctest.Wait()
		}

		if s.others != 0 || s.yielding != 0 {
			t.Errorf("%d requests hold a slot and %d yield at the end, want 0 and 0", s.others, s.yielding)
		}
	})
}
