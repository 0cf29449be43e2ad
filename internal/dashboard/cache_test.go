// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// TestCache checks that a value is read once for each key until it expires, and that the least recently used one is dropped.
func TestCache(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	reads := map[string]int{}
	c := NewCache(Limits{Size: 2, TTL: time.Minute, Timeout: time.Second, Patience: time.Second}, clk, func(_ context.Context, key string) (*int, error) {
		reads[key]++
		n := reads[key]
		return &n, nil
	})

	get := func(key string, want int) {
		t.Helper()

		if got, _, _, err := c.Get(t.Context(), key); err != nil || *got != want {
			t.Errorf("%s: read %d times, want %d; %v", key, *got, want, err)
		}
	}

	get("a", 1)
	get("b", 1)
	get("a", 1)
	get("c", 1) // drops b
	get("a", 1)
	get("b", 2)
	clk.Step(time.Minute)
	get("b", 3)
}
