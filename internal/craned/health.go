// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// sourceCheckInterval is the interval between two checks of a data source.
	sourceCheckInterval = 15 * time.Second
	// sourceCheckTimeout is the timeout of one check. A source that does not answer a simple query in time serves no history.
	sourceCheckTimeout = 10 * time.Second
	// cacheCheckTimeout is how long one readiness check waits for caches.
	cacheCheckTimeout = time.Second
)

// sourceHealth checks a data source at intervals, so that readiness probes send no queries. It runs on every replica, including
// standbys.
type sourceHealth struct {
	// name is the name of the source.
	name string
	// probe sends a cheap query to the source.
	probe func(context.Context) error

	mu  sync.Mutex
	err error
}

func newSourceHealth(name string, probe func(context.Context) error) *sourceHealth {
	return &sourceHealth{name: name, probe: probe, err: errors.New("not asked yet")}
}

// Start checks the source until ctx ends.
func (s *sourceHealth) Start(ctx context.Context) error {
	tick := time.NewTicker(sourceCheckInterval)
	defer tick.Stop()

	for {
		s.check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// NeedLeaderElection returns false: the readiness of a standby depends on the check too.
func (s *sourceHealth) NeedLeaderElection() bool { return false }

func (s *sourceHealth) check(ctx context.Context) {
	checkCtx, cancel := context.WithTimeout(ctx, sourceCheckTimeout)
	defer cancel()

	err := s.probe(checkCtx)
	if ctx.Err() != nil {
		return
	}

	s.mu.Lock()
	changed := (err == nil) != (s.err == nil)
	s.err = err
	s.mu.Unlock()

	if !changed {
		return
	}

	if err != nil {
		log.FromContext(ctx).Error(err, "checking data source", "source", s.name)
		return
	}

	log.FromContext(ctx).Info("data source answers", "source", s.name)
}

// Check returns the last error of the source.
func (s *sourceHealth) Check(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.err != nil {
		return fmt.Errorf("data source %s: %w", s.name, s.err)
	}

	return nil
}

// anySourceHealthy returns a check that passes while at least one source of history answers, or at least one source if none has
// history.
func anySourceHealthy(all []*sourceHealth) healthz.Checker {
	historic := slices.DeleteFunc(slices.Clone(all), func(h *sourceHealth) bool { return !keepsHistory(h.name) })
	if len(historic) == 0 {
		historic = all
	}

	return func(req *http.Request) error {
		var errs []error
		for _, h := range historic {
			err := h.Check(req)
			if err == nil {
				return nil
			}

			errs = append(errs, err)
		}

		return errors.Join(errs...)
	}
}

// newSourceUpCollector returns a metric of the last check of each source.
func newSourceUpCollector(all []*sourceHealth) prometheus.Collector { return sourceUpCollector(all) }

type sourceUpCollector []*sourceHealth

func upDesc() *prometheus.Desc {
	return prometheus.NewDesc("crane_data_source_up", "1 where the data source answered when it was asked last.", []string{"source"}, nil)
}

// Describe implements prometheus.Collector.
func (sourceUpCollector) Describe(to chan<- *prometheus.Desc) { to <- upDesc() }

// Collect implements prometheus.Collector.
func (s sourceUpCollector) Collect(to chan<- prometheus.Metric) {
	for _, h := range s {
		value := 1.0
		if h.Check(nil) != nil {
			value = 0
		}

		to <- prometheus.MustNewConstMetric(upDesc(), prometheus.GaugeValue, value, h.name)
	}
}

// cachesSynced fails until every started informer has its first list.
func cachesSynced(c cache.Cache) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), cacheCheckTimeout)
		defer cancel()

		if !c.WaitForCacheSync(ctx) {
			return errors.New("caches are not synced")
		}

		return nil
	}
}
