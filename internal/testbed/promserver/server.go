// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promserver runs a Prometheus in this process: its time series database, query engine and HTTP API, on
// loopback, for the playground, integration tests and benchmarks.
//
// It writes history as finished blocks, appends live samples, and scrapes targets with Options.ScrapeConfigs.
package promserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/prometheus/prometheus/scrape"

	"crane.io/crane/internal/testbed/loopback"
)

// shutdownGrace bounds the wait of Stop for running queries.
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
	scrapes *scrape.Manager               // nil while stopped or without ScrapeConfigs; guarded by mu

	mu           sync.Mutex
	addr         string
	reservedPort *loopback.Port // nil if Options.Listen is set
	http         *http.Server
	done         chan struct{} // closed when http has ended
	closed       bool

	appendMu  sync.Mutex
	lastBatch map[string]map[uint64]liveSeries // series of the last batch by source
	stats     AppendStats
}

// Open opens the data directory and listens. The caller must close the server.
func Open(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}

	s := &Server{
		opts:      o,
		addr:      o.Listen,
		started:   o.Now(),
		reg:       prometheus.NewRegistry(),
		parser:    parser.NewParser(parser.Options{}),
		lastBatch: map[string]map[uint64]liveSeries{},
	}

	s.data = &database{dir: o.Dir, opts: &s.opts}
	s.reg.MustRegister(collectors.NewGoCollector())
	s.engine = promql.NewEngine(promql.EngineOpts{
		Logger:                   o.Logger,
		Reg:                      s.reg,
		MaxSamples:               o.MaxSamples,
		Timeout:                  o.Timeout,
		LookbackDelta:            defaultLookback,
		NoStepSubqueryIntervalFn: func(int64) int64 { return o.ScrapeInterval.Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnablePerStepStats:       true,
		Parser:                   s.parser,
	})

	// The targets are checked before the data directory is opened.
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

// listen starts the server for the first time. An automatically chosen port stays reserved until Close, so that Start
// succeeds after Stop.
func (s *Server) listen() error {
	if s.opts.Listen == defaultListen {
		port, err := loopback.Reserve(context.Background(), 0)
		if err != nil {
			return fmt.Errorf("promserver: %w", err)
		}

		s.reservedPort = port
		s.addr = port.Address()
	}

	return s.Start()
}

// URL returns the address for clients, without a trailing slash.
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
		return errors.New("promserver: cannot start after Close")
	}

	if s.http != nil {
		return nil
	}

	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("promserver: listening: %w", err)
	}

	s.addr = l.Addr().String()
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}

	// Rules and scrapes run only while the server listens, like in a real Prometheus.
	manager, err := s.startRules()
	if err != nil {
		return errors.Join(err, l.Close())
	}

	if s.scrapes, err = s.startScraping(); err != nil {
		return errors.Join(err, l.Close())
	}

	srv := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	s.http = srv
	s.done = done
	s.rules.Store(manager)

	go func() {
		defer close(done)

		if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.opts.Logger.Error("HTTP server ended", "err", err)
		}
	}()

	return nil
}

// Stop closes the listener and all connections, which clients cannot distinguish from a crash. The data stays open;
// samples appended until Start are dropped and counted. It is a no-op on a stopped server.
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

	if s.scrapes != nil {
		s.scrapes.Stop()
		s.scrapes.UnregisterMetrics()
		s.scrapes = nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()

	// Queries that outlast the grace period are cut off.
	if err := s.http.Shutdown(ctx); err != nil {
		if err := s.http.Close(); err != nil {
			return fmt.Errorf("promserver: stopping: %w", err)
		}
	}

	<-s.done
	s.http = nil
	s.done = nil

	return nil
}

// Running reports whether the server listens.
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
	if s.reservedPort != nil {
		err = errors.Join(err, s.reservedPort.Close())
		s.reservedPort = nil
	}

	return err
}

// LastSample returns the time of the newest sample, or false without samples.
func (s *Server) LastSample() (time.Time, bool) { return s.data.last() }

const (
	defaultListen         = "127.0.0.1:0"
	defaultMaxSamples     = 50_000_000 // query.max-samples of Prometheus
	defaultTimeout        = 2 * time.Minute
	defaultScrapeInterval = time.Minute
	defaultLookback       = 5 * time.Minute
)

// Options configures a Server. All fields except Dir are optional.
type Options struct {
	// Dir contains blocks and the write-ahead log; it is created if absent. Required.
	Dir string
	// Listen is host:port; the default is 127.0.0.1:0, a free port that stays the same across Stop and Start.
	Listen string
	// Retention is the age at which blocks are deleted; 0 keeps all.
	Retention time.Duration
	// MaxSamples bounds the samples that one query may load; the default is 50 million, as in Prometheus.
	MaxSamples int
	// Timeout bounds a query; the default is 2 minutes, as in Prometheus.
	Timeout time.Duration
	// ScrapeInterval is the interval that the configuration and the targets report; the default is 1 minute.
	ScrapeInterval time.Duration
	// Targets are reported as scraped, each with the health "up".
	Targets []Target
	// ScrapeConfigs is the section scrape_configs of a Prometheus configuration with static targets, which are scraped while the server runs
	// and are not reported by the targets API; empty for none.
	ScrapeConfigs string
	// Rules is the content of a Prometheus rule file, evaluated while the server runs; empty for none.
	Rules string
	// Middleware wraps the HTTP handler, for authentication and fault injection; nil for none.
	Middleware func(http.Handler) http.Handler
	// TLS enables HTTPS; nil for plain HTTP.
	TLS *tls.Config
	// Logger receives the logs of the database and the engine; nil discards them.
	Logger *slog.Logger
	// Now returns the current time for target reports; nil is time.Now.
	Now func() time.Time
}

// Target is one scrape target that the server reports.
type Target struct {
	// Job and Instance are the labels of the same names.
	Job, Instance string
	// Metadata describes the metric families of the target.
	Metadata []Metadata
}

// Metadata describes a metric family for /api/v1/metadata.
type Metadata struct {
	// Name is the family, Type one of counter, gauge, histogram, summary, unknown; Help is one sentence.
	Name, Type, Help string
}

func (o *Options) complete() error {
	if o.Dir == "" {
		return errors.New("promserver: no data directory")
	}

	if o.MaxSamples < 0 || o.Timeout < 0 || o.Retention < 0 || o.ScrapeInterval < 0 {
		return fmt.Errorf("promserver: negative option: max samples %d, timeout %s, retention %s, scrape interval %s",
			o.MaxSamples, o.Timeout, o.Retention, o.ScrapeInterval)
	}

	// Everything else has a default.
	if o.Listen == "" {
		o.Listen = defaultListen
	}

	if o.MaxSamples == 0 {
		o.MaxSamples = defaultMaxSamples
	}

	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}

	if o.ScrapeInterval == 0 {
		o.ScrapeInterval = defaultScrapeInterval
	}

	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	if o.Now == nil {
		o.Now = time.Now
	}

	return nil
}
