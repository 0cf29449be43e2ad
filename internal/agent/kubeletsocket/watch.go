// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletsocket

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// readInterval is the interval of reads.
const readInterval = 10 * time.Second

// errNotRead is the error before the first read.
var errNotRead = errors.New("the kubelet's socket was not read yet")

// Watch keeps the last assignments, so that a slow kubelet delays nobody who asks for them. It is a manager of the agent.
type Watch struct {
	socket string
	clock  clock.WithTicker
	beat   func(step string)
	last   atomic.Pointer[result]
}

type result struct {
	assignments Assignments
	err         error
}

// NewWatch returns the watch of a socket, which calls beat after each read.
func NewWatch(socket string, clk clock.WithTicker, beat func(step string)) *Watch {
	return &Watch{socket: socket, clock: clk, beat: beat}
}

// WatchName is the name of the manager.
const WatchName = "kubelet-socket"

// Name returns WatchName.
func (*Watch) Name() string { return WatchName }

// Run reads at intervals until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	ticker := w.clock.NewTicker(readInterval)
	defer ticker.Stop()

	for {
		assignments, err := Read(ctx, w.socket)
		w.last.Store(&result{assignments, err})
		w.beat("read")

		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Latest returns the result of the last read. It is a Source.
func (w *Watch) Latest() (Assignments, error) {
	last := w.last.Load()
	if last == nil {
		return Assignments{}, errNotRead
	}

	return last.assignments, last.err
}
