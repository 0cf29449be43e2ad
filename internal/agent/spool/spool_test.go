// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestSpool checks that queued lines are written at the end, and that lines that do not fit or fail are dropped and counted.
func TestSpool(t *testing.T) {
	full := errors.New("full")
	var written []string
	closed := 0

	s := New(Config{
		QueueSize: 3, Clock: clocktesting.NewFakeClock(time.Time{}), Log: logr.Discard(), Beat: func(string) {},
		Write: func(line []byte) error {
			if string(line) == "bad" {
				return full
			}

			written = append(written, string(line))
			return nil
		},
		Close: func() error { closed++; return nil },
	})

	if !s.Enqueue([]byte("a")) || !s.Enqueue([]byte("bad")) || !s.Enqueue([]byte("c")) || s.Enqueue([]byte("d")) {
		t.Error("Enqueue of four lines, want three to be queued")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := s.Run(ctx); !errors.Is(err, full) || closed != 1 || s.Dropped() != 2 || len(written) != 2 || written[1] != "c" {
		t.Errorf("Run = %v, closed %d times, %d dropped, written %v; want the full disk, once, 2, and a and c", err, closed, s.Dropped(), written)
	}
}
