// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"crane.io/crane/internal/testbed/loopback"
)

// shutdownGrace is how long Stop waits for queries that run.
const shutdownGrace = 2 * time.Second

// Server is a Prometheus that listens on loopback. Its methods may be called from several goroutines.
type Server struct {
	opts    Options
	data    *database
	reg     *prometheus.Registry
	engine  *promql.Engine
	parser  parser.Parser
	targets *targetSet
	started time.Time
	handler http.Handler
	rules   atomic.Pointer[rules.Manager] // nil while stopped or without rules

	mu     sync.Mutex
	addr   string
	held   *loopback.Port // nil where the caller chose the address
	http   *http.Server
	done   chan struct{} // closed when http has ended
	closed bool

	appendMu sync.Mutex
	seen     map[string]map[uint64]liveSeries // by source: what the last batch held
	stats    AppendStats
}

// Open opens the data directory and listens. The caller closes the server.
func Open(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{
		opts: o, addr: o.Listen, started: o.Now(), reg: prometheus.NewRegistry(),
		parser: parser.NewParser(parser.Options{}), seen: map[string]map[uint64]liveSeries{},
	}
	s.data = &database{dir: o.Dir, opts: &s.opts}
	s.reg.MustRegister(collectors.NewGoCollector())
	s.engine = promql.NewEngine(promql.EngineOpts{
		Logger: o.Logger, Reg: s.reg, MaxSamples: o.MaxSamples, Timeout: o.Timeout, LookbackDelta: defaultLookback,
		NoStepSubqueryIntervalFn: func(int64) int64 { return o.ScrapeInterval.Milliseconds() },
		EnableAtModifier:         true, EnableNegativeOffset: true, EnablePerStepStats: true, Parser: s.parser,
	})
	targets, err := newTargetSet(&s.opts)
	if err != nil {
		return nil, err
	}
	s.targets = targets
	if err := s.data.open(); err != nil {
		return nil, err
	}
	handler, err := s.newHandler()
	if err != nil {
		return nil, errors.Join(err, s.data.close())
	}
	s.handler = handler
	if err := s.listen(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// listen starts for the first time. A port of our own choice is kept until Close: it is to be free when Start follows Stop.
func (s *Server) listen() error {
	if s.opts.Listen == defaultListen {
		port, err := loopback.Reserve(context.Background(), 0)
		if err != nil {
			return fmt.Errorf("promserver: %w", err)
		}
		s.held, s.addr = port, port.Address()
	}
	return s.Start()
}

// URL is the address that clients use, without a trailing slash.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	scheme := "http"
	if s.opts.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + s.addr
}

// Start listens again after Stop, on the same port and with the same data. It is a no-op on a running server.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("promserver: start after close")
	}
	if s.http != nil {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("promserver: listen: %w", err)
	}
	s.addr = l.Addr().String()
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	manager, err := s.startRules()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	srv := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	s.http, s.done = srv, done
	s.rules.Store(manager)
	go func() {
		defer close(done)
		if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.opts.Logger.Error("HTTP server ended", "err", err)
		}
	}()
	return nil
}

// Stop closes the listener and every connection, as a crash would look to a client. The data stays open; what is
// appended until Start is dropped and counted. It is a no-op on a stopped server.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop()
}

func (s *Server) stop() error {
	if s.http == nil {
		return nil
	}
	if m := s.rules.Swap(nil); m != nil {
		m.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		if err := s.http.Close(); err != nil {
			return fmt.Errorf("promserver: stop: %w", err)
		}
	}
	<-s.done
	s.http, s.done = nil, nil
	return nil
}

// Running tells whether the server listens.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.http != nil
}

// Close stops the server and closes the data. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	err := errors.Join(s.stop(), s.data.close())
	if s.held != nil {
		err = errors.Join(err, s.held.Close())
		s.held = nil
	}
	return err
}

// LastSample returns the time of the newest sample, or false where there is none.
func (s *Server) LastSample() (time.Time, bool) { return s.data.last() }
