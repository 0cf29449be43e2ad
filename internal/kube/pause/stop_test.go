// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// stuckServer is an API server that answers no request before it is released, whatever becomes of the request's context.
type stuckServer struct{ asked, release chan struct{} }

func (s stuckServer) RoundTrip(*http.Request) (*http.Response, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}

	<-s.release
	return nil, errors.New("connection refused")
}

// TestStopWithoutAPIServer checks that the switch ends while client-go waits without heed to the context, as it does between two attempts.
func TestStopWithoutAPIServer(t *testing.T) {
	server := stuckServer{asked: make(chan struct{}, 1), release: make(chan struct{})}
	defer close(server.release)

	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api.example", Transport: server})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(client, "crane-system", clock.RealClock{}).Start(ctx) }()

	<-server.asked
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
