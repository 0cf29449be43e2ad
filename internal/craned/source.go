// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
)

// newSource opens the source of history that the options name. It sends nothing yet.
func newSource(p Prometheus) (*prometheus.Source, error) {
	matchers, err := prometheus.ParseMatchers(p.ExtensionLabels)
	if err != nil {
		return nil, fmt.Errorf("--extension-labels: %w", err)
	}
	cfg := prometheus.DefaultConfig()
	cfg.Address = p.Address
	cfg.Username, cfg.Password = p.Username, p.Password
	cfg.BearerToken, cfg.BearerTokenFile = p.BearerToken, p.BearerTokenFile
	cfg.TLS = prometheus.TLSConfig{
		CAFile: p.CAFile, CertFile: p.CertFile, KeyFile: p.KeyFile, InsecureSkipVerify: p.InsecureSkipVerify,
	}
	cfg.Concurrency, cfg.MaxPoints = p.Concurrency, p.MaxPoints
	cfg.Timeout, cfg.KeepAlive = p.Timeout, p.KeepAlive
	cfg.Matchers = matchers
	source, err := prometheus.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("data source prom: %w", err)
	}
	return source, nil
}

// askSource is the cheapest question that any server with this API answers.
func askSource(q metrics.Querier) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := q.Instant(ctx, "vector(1)", time.Now())
		if err != nil {
			return fmt.Errorf("asking the data source: %w", err)
		}
		return nil
	}
}
