// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"testing"

	"crane.io/crane/internal/scheduler/simulate/engine"
	"crane.io/crane/internal/scheduler/simulate/peer"
)

// TestHerd checks that no node ends above the mean by more than one pod of the burst; gocrane's formula fills the
// idle node.
func TestHerd(t *testing.T) {
	herd := func(ctx context.Context, size int, name string, p func(peer.Env) peer.Policy) engine.Herd {
		h, err := engine.RunHerd(ctx, 100, size, name, p)
		if err != nil {
			t.Fatalf("RunHerd of %s: %v, want no error", name, err)
		}

		t.Logf("%+v", h)
		return h
	}

	for _, size := range []int{10, 50, 200} {
		h := herd(t.Context(), size, "spread", ours(t, nil))
		if h.Waiting > 0 || h.Above > h.PodShare {
			t.Errorf("of %d pods the fullest node has %d and is %.4f above the mean, %d wait, want %.4f (one pod) or less and none", size, h.Most, h.Above, h.Waiting, h.PodShare)
		}
	}

	if h := herd(t.Context(), 100, "gocrane", peer.Gocrane); h.Above < 2*h.PodShare {
		t.Errorf("gocrane's formula ends %.4f above the mean, want two pods (%.4f) or more", h.Above, 2*h.PodShare)
	}
}
