// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// TestStopWithoutAPIServer checks that the watcher ends at once while the API server does not answer, whatever client-go waits for.
func TestStopWithoutAPIServer(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:9"} // Nobody listens there.
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

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()

	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-ctx.Done()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	case <-time.After(time.Second):
		t.Error("Run still runs 1s after its context has ended")
	}
}
