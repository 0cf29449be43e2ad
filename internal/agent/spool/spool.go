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

// idle is how often a spool that has nothing to write shows that it is there.
const idle = 10 * time.Second

// Config is what a Spool needs.
type Config struct {
	// Waiting bounds the lines that are still to be written, as to a disk that hangs.
	Waiting int
	// Put writes a line. Close is called after the last one. Both are called by Run alone.
	Put   func(line []byte) error
	Close func() error
	// Failing is what the log says where lines cannot be written, once for each reason.
	Failing string
	Clock   clock.WithTicker
	Log     logr.Logger
	Beat    func(step string)
}

// Spool holds lines until they are written. What cannot be written is dropped and counted. It is safe for concurrent use.
type Spool struct {
	cfg     Config
	lines   chan []byte
	dropped atomic.Int64
}

// New returns a spool without lines.
func New(cfg Config) *Spool { return &Spool{cfg: cfg, lines: make(chan []byte, cfg.Waiting)} }

// Hand hands a line over, and tells whether there was room for it.
func (s *Spool) Hand(line []byte) bool {
	select {
	case s.lines <- line:
		return true
	default:
		s.Drop()
		return false
	}
}

// Drop counts a line that cannot even be handed over.
func (s *Spool) Drop() { s.dropped.Add(1) }

// Dropped is how many lines were not written.
func (s *Spool) Dropped() int64 { return s.dropped.Load() }

// Run writes until ctx ends, and then what still waits.
func (s *Spool) Run(ctx context.Context) error {
	ticker := s.cfg.Clock.NewTicker(idle)
	defer ticker.Stop()
	told := ""
	for ctx.Err() == nil {
		s.cfg.Beat("write")
		select {
		case <-ctx.Done():
		case <-ticker.C():
		case line := <-s.lines:
			err := s.cfg.Put(line)
			if err == nil {
				told = ""
				continue
			}
			s.Drop()
			if told != err.Error() {
				told = err.Error()
				s.cfg.Log.Info(s.cfg.Failing, "error", told)
			}
		}
	}
	return s.end()
}

// end writes what waits. Of errors the last says enough.
func (s *Spool) end() error {
	var failed error
	for {
		select {
		case line := <-s.lines:
			if err := s.cfg.Put(line); err != nil {
				s.Drop()
				failed = err
			}
		default:
			return errors.Join(failed, s.cfg.Close())
		}
	}
}
