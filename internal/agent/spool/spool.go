// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spool writes queued lines in the background, so that no caller waits for a disk.
package spool

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// idleBeat is the heartbeat interval of an idle spool.
const idleBeat = 10 * time.Second

// Config configures a Spool.
type Config struct {
	// QueueSize bounds the lines waiting for a slow disk.
	QueueSize int
	// Write writes a line. Close is called after the last one. Both are called by Run only.
	Write func(line []byte) error
	Close func() error
	// FailureMessage is logged once per cause when lines cannot be written.
	FailureMessage string
	Clock          clock.WithTicker
	Log            logr.Logger
	Beat           func(step string)
}

// Spool queues lines until they are written, and drops and counts those that cannot be. It is safe for concurrent use.
type Spool struct {
	cfg     Config
	lines   chan []byte
	dropped atomic.Int64
}

// New returns an empty spool.
func New(cfg Config) *Spool { return &Spool{cfg: cfg, lines: make(chan []byte, cfg.QueueSize)} }

// Enqueue queues a line and reports whether there was room.
func (s *Spool) Enqueue(line []byte) bool {
	select {
	case s.lines <- line:
		return true
	default:
		s.CountDropped()
		return false
	}
}

// CountDropped counts a line that could not be encoded or queued.
func (s *Spool) CountDropped() { s.dropped.Add(1) }

// Dropped returns the number of dropped lines.
func (s *Spool) Dropped() int64 { return s.dropped.Load() }

// Run writes lines until ctx ends, and then those still queued.
func (s *Spool) Run(ctx context.Context) error {
	ticker := s.cfg.Clock.NewTicker(idleBeat)
	defer ticker.Stop()

	logged := ""
	for ctx.Err() == nil {
		s.cfg.Beat("write")
		select {
		case <-ctx.Done():

		case <-ticker.C():

		case line := <-s.lines:
			err := s.cfg.Write(line)
			if err == nil {
				logged = ""
				continue
			}

			s.CountDropped()
			// A full disk fails for every line; only another cause is news.
			if logged != err.Error() {
				logged = err.Error()
				s.cfg.Log.Error(err, s.cfg.FailureMessage)
			}
		}
	}

	return s.drain()
}

// drain writes the queued lines and returns the last error.
func (s *Spool) drain() error {
	var lastErr error
	for {
		select {
		case line := <-s.lines:
			if err := s.cfg.Write(line); err != nil {
				s.CountDropped()
				lastErr = err
			}

		default:
			return errors.Join(lastErr, s.cfg.Close())
		}
	}
}
