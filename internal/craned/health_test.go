// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSourceHealth checks that the source is not ready before the first answer, ready with it, not ready when the source fails
// and ready when it recovers, and that the check ends with its context.
func TestSourceHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var answer error
		asked := 0

		h := newSourceHealth(dataSourceProm, func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the probe has no deadline, want one")
			}

			mu.Lock()
			defer mu.Unlock()

			asked++
			return answer
		})

		if h.Check(nil) == nil {
			t.Error("Check before the first probe = nil, want an error")
		}

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- h.Start(ctx) }()

		for _, next := range []error{nil, errors.New("connection refused"), nil} {
			mu.Lock()
			answer = next
			mu.Unlock()
			time.Sleep(sourceCheckInterval)
			synctest.Wait()

			if err := h.Check(nil); (err == nil) != (next == nil) {
				t.Errorf("Check = %v after a probe with %v, want both nil or none", err, next)
			}
		}

		cancel()
		if err := <-ended; err != nil || asked < 3 {
			t.Errorf("Start = %v after %d probes, want nil after 3 or more", err, asked)
		}
	})
}
