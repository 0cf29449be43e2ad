// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promserver is a whole Prometheus in this process: its time series database, its query engine and its HTTP
// API, on loopback, for the playground, for integration tests and for benchmarks.
//
// What belongs in: opening and stopping the server, writing history as finished blocks, appending live samples. It must
// not know what the series mean (internal/testbed/playground/clusterseries does) nor who reads them (internal/metrics does).
package promserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

const (
	defaultListen         = "127.0.0.1:0"
	defaultMaxSamples     = 50_000_000 // query.max-samples of Prometheus
	defaultTimeout        = 2 * time.Minute
	defaultScrapeInterval = time.Minute
	defaultLookback       = 5 * time.Minute
)

// Options say where the server keeps its data and what it reports about itself. The zero value of every field but Dir
// is a usable default.
type Options struct {
	// Dir holds blocks and write-ahead log; it is made if absent. Required.
	Dir string
	// Listen is host:port; default 127.0.0.1:0, a free port that Stop and Start keep.
	Listen string
	// Retention drops blocks older than this; 0 keeps all.
	Retention time.Duration
	// MaxSamples is the most samples that one query may hold in memory; default 50 million, as Prometheus.
	MaxSamples int
	// Timeout ends a query; default 2 minutes, as Prometheus.
	Timeout time.Duration
	// ScrapeInterval is what the configuration and the targets report; default 1 minute. Nothing is scraped.
	ScrapeInterval time.Duration
	// Targets are reported as scraped, each with the health "up".
	Targets []Target
	// Rules is a rule file in Prometheus' YAML, evaluated while the server runs; empty for none.
	Rules string
	// Middleware wraps the whole HTTP handler, for authentication and for faults; nil for none.
	Middleware func(http.Handler) http.Handler
	// TLS makes the server speak HTTPS; nil for plain HTTP.
	TLS *tls.Config
	// Logger receives what the database and the engine log; nil discards it.
	Logger *slog.Logger
	// Now is the clock that target reports use; nil is time.Now.
	Now func() time.Time
}

// Target is one scrape target that the server claims to have.
type Target struct {
	// Job and Instance are the labels of the same names.
	Job, Instance string
	// Metadata are the metric families that the target exposes.
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

// RequireBasicAuth is a middleware that answers 401 unless the request carries this user and password.
func RequireBasicAuth(user, password string) func(http.Handler) http.Handler {
	return require(func(r *http.Request) bool {
		u, p, ok := r.BasicAuth()
		return ok && u == user && p == password
	}, `Basic realm="prometheus"`)
}

// RequireBearer is a middleware that answers 401 unless the request carries this bearer token.
func RequireBearer(token string) func(http.Handler) http.Handler {
	return require(func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+token }, "Bearer")
}

func require(allowed func(*http.Request) bool, challenge string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !allowed(r) {
				w.Header().Set("WWW-Authenticate", challenge)
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}
