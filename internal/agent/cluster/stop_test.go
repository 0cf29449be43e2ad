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
	"k8s.io/utils/clock"

	"crane.io/crane/internal/testbed/stuckserver"
)

// TestStopWithoutAPIServer checks that the watcher ends while client-go waits without heed to the context, as it does between two attempts.
func TestStopWithoutAPIServer(t *testing.T) {
	server := stuckserver.New()
	defer server.Release()

	config := server.Config()
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

	<-server.Asked()
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
