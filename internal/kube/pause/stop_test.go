// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// TestStopWithoutAPIServer checks that the switch ends at once while the API server does not answer, whatever client-go waits for.
func TestStopWithoutAPIServer(t *testing.T) {
	const nobodyListens = "http://127.0.0.1:9"
	client, err := kubernetes.NewForConfig(&rest.Config{Host: nobodyListens})
	if err != nil {
		t.Fatal(err)
	}

	// The pauses between attempts grow; after 4 s one lasts several seconds.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()

	done := make(chan error, 1)
	go func() { done <- New(client, "crane-system", clock.RealClock{}).Start(ctx) }()
	<-ctx.Done()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Start = %v, want nil", err)
		}
	case <-time.After(time.Second):
		t.Error("Start still runs 1s after its context has ended")
	}
}
