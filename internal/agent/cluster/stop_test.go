// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
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

// TestStopWithoutAPIServer checks that the watcher ends while client-go waits without heed to the context, as it does between two attempts.
func TestStopWithoutAPIServer(t *testing.T) {
	server := stuckServer{asked: make(chan struct{}, 1), release: make(chan struct{})}
	defer close(server.release)

	config := &rest.Config{Host: "http://api.example", Transport: server}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	w := NewWatcher(Config{
		Client:    client,
		Dynamic:   objects,
		Node:      "n",
		Namespace: "crane-system",
		Clock:     clock.RealClock{},
		Log:       logr.Discard(),
		Beat:      func(string) {},
	})

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()

	<-server.asked
	cancel()

	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	case <-time.After(time.Minute):
		t.Error("Run still runs a minute after the end of its context, want it to end while a request waits")
	}
}
