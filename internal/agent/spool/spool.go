// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spool writes lines beside those who have them: nobody waits for a disk.
package spool

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// idleBeat is how often a spool that has nothing to write shows that it is there.
const idleBeat = 10 * time.Second

// Config is what a Spool needs.
type Config struct {
	// QueueSize bounds the lines that are still to be written, as to a disk that hangs.
	QueueSize int
	// Write writes a line. Close is called after the last one. Both are called by Run alone.
	Write func(line []byte) error
	Close func() error
	// FailureMessage is what the log says where lines cannot be written, once for each reason.
	FailureMessage string
	Clock          clock.WithTicker
	Log            logr.Logger
	Beat           func(step string)
}

// Spool holds lines until they are written. What cannot be written is dropped and counted. It is safe for concurrent use.
type Spool struct {
	cfg     Config
	lines   chan []byte
	dropped atomic.Int64
}

// New returns a spool without lines.
func New(cfg Config) *Spool { return &Spool{cfg: cfg, lines: make(chan []byte, cfg.QueueSize)} }

// Enqueue hands a line over, and tells whether there was room for it.
func (s *Spool) Enqueue(line []byte) bool {
	select {
	case s.lines <- line:
		return true
	default:
		s.CountDropped()
		return false
	}
}

// CountDropped counts a line that cannot even be handed over.
func (s *Spool) CountDropped() { s.dropped.Add(1) }

// Dropped is how many lines were not written.
func (s *Spool) Dropped() int64 { return s.dropped.Load() }

// Run writes until ctx ends, and then what still waits.
func (s *Spool) Run(ctx context.Context) error {
	ticker := s.cfg.Clock.NewTicker(idleBeat)
	defer ticker.Stop()
	told := ""
	for ctx.Err() == nil {
		s.cfg.Beat("write")
		select {
		case <-ctx.Done():
		case <-ticker.C():
		case line := <-s.lines:
			err := s.cfg.Write(line)
			if err == nil {
				told = ""
				continue
			}
			s.CountDropped()
			if told != err.Error() {
				told = err.Error()
				s.cfg.Log.Info(s.cfg.FailureMessage, "error", told)
			}
		}
	}
	return s.drain()
}

// drain writes what waits. Of errors the last says enough.
func (s *Spool) drain() error {
	var failed error
	for {
		select {
		case line := <-s.lines:
			if err := s.cfg.Write(line); err != nil {
				s.CountDropped()
				failed = err
			}
		default:
			return errors.Join(failed, s.cfg.Close())
		}
	}
}
