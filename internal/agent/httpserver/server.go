// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"crane.io/crane/internal/component/boundedserver"
	"crane.io/crane/internal/component/recovery"
	"crane.io/crane/internal/component/seriesguard"
)

const (
	// requestTimeout bounds the reading of a request; profileTimeout bounds the writing of a profile.
	requestTimeout = 10 * time.Second
	profileTimeout = 2 * time.Minute
	// shutdownTimeout bounds running requests at the end.
	shutdownTimeout = 2 * time.Second
	// maxScrapes is the number of concurrent scrapes.
	maxScrapes = 4
	// maxConnections bounds the connections of clients, of whom most are not authenticated.
	maxConnections = 64
)

// Config configures a Server.
type Config struct {
	// Address is the listen address, as in 0.0.0.0:8081.
	Address string
	Gather  prometheus.Gatherer
	// Log receives the errors of gathering.
	Log logr.Logger
	// Unhealthy lists the problems for which the agent should be restarted, Unready those it still waits for.
	Unhealthy, Unready func() []string
	// Profiling serves /debug/pprof as well.
	Profiling bool
	// Protect wraps the pages that show pods and profiles, to let in authorized clients only; nil for none. The pages of health stay open.
	Protect func(http.Handler) http.Handler
	// TLS is the configuration of the listener; nil for plain HTTP.
	TLS *tls.Config
}

// Server is a listening HTTP server.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// Listen opens the listener, so that an address in use is reported before any part is started.
func Listen(ctx context.Context, c Config) (*Server, error) {
	listener, err := boundedserver.Listen(ctx, c.Address, maxConnections, c.TLS)
	if err != nil {
		return nil, fmt.Errorf("--bind-address: %w", err)
	}

	s := &Server{listener: listener, server: boundedserver.New(Handler(c), 2*requestTimeout)}
	s.server.ReadTimeout = requestTimeout

	// Otherwise clients without a token could hold all connections, and the kubelet's probe would restart the agent.
	s.server.SetKeepAlivesEnabled(false)

	if c.Profiling {
		s.server.WriteTimeout = profileTimeout
	}

	return s, nil
}

// Name implements the agent's Manager.
func (*Server) Name() string { return "http" }

// Address returns the listen address.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close closes a server that was not run.
func (s *Server) Close() { s.listener.Close() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(s.listener) }()

	select {
	case err := <-ended:
		return fmt.Errorf("serving %s: %w", s.Address(), err)
	case <-ctx.Done():
	}

	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()

	if err := s.server.Shutdown(shutdownCtx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shutting down: %w", err)
	}

	_ = s.server.Close() // Requests still running had their time.
	return nil
}

// Handler returns the handler of all pages.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	healthy := statusPage(c.Unhealthy, "OK")
	mux.Handle("GET /health-check", healthy)
	mux.Handle("GET /healthz", healthy)
	mux.Handle("GET /readyz", statusPage(c.Unready, "ok"))

	protect := c.Protect
	if protect == nil {
		protect = func(h http.Handler) http.Handler { return h }
	}

	mux.Handle("GET /metrics", protect(seriesguard.Handler(c.Gather, c.Log, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})))
	if c.Profiling {
		for path, page := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			mux.Handle("GET /debug/pprof/"+path, protect(page))
		}
	}

	return recovery.Handler(mux, func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	})
}

// statusPage responds with 200 without problems and with 500 and the problems otherwise.
func statusPage(problems func() []string, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if list := problems(); len(list) > 0 {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintln(w, strings.Join(list, "\n"))
			return
		}

		fmt.Fprint(w, text)
	})
}
