// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promserver runs a Prometheus in this process: its time series database, query engine and HTTP API, on
// loopback, for the playground, integration tests and benchmarks.
//
// It writes history as finished blocks and appends live samples; it does not scrape.
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
