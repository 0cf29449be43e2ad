// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/testbed/stuckserver"
)

// TestStopWithoutAPIServer checks that the switch ends while client-go waits without heed to the context, as it does between two attempts.
func TestStopWithoutAPIServer(t *testing.T) {
	server := stuckserver.New()
	defer server.Release()

	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(client, "crane-system", clock.RealClock{}).Start(ctx) }()

	<-server.Asked()
	cancel()

	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Start = %v, want nil", err)
		}
	case <-time.After(time.Minute):
		t.Error("Start still runs a minute after the end of its context, want it to end while a request waits")
	}
}
