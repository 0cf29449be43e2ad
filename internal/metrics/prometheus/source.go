// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"slices"
	"sync"
	"time"

	"crane.io/crane/internal/metrics"
)

// Source reads history from a server with the Prometheus HTTP API. It is safe for use by several goroutines; all of
// them share Config.Concurrency.
type Source struct {
	client *client

	mu       sync.Mutex
	interval interval
}

var (
	_ metrics.Querier     = (*Source)(nil)
	_ metrics.UsageReader = (*Source)(nil)
	_ metrics.Prober      = (*Source)(nil)
	_ metrics.Inventory   = (*Source)(nil)
	_ metrics.OOMReader   = (*Source)(nil)

	_ metrics.MemoryTeller = (*Source)(nil)
)

// New checks the configuration and reads the files that it names. It sends nothing: Probe does.
func New(cfg Config) (*Source, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Source{client: c}, nil
}

// MemoryDetails implements metrics.MemoryTeller.
func (s *Source) MemoryDetails() []metrics.Resource {
	return []metrics.Resource{metrics.HeldMemory, metrics.AnonymousMemory}
}

// Stats is what reading has cost so far.
func (s *Source) Stats() metrics.Stats {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	out := s.client.stats
	out.Warnings = slices.Clone(out.Warnings)
	return out
}

// matchers are those of the configuration after those given.
func (s *Source) matchers(own ...Matcher) []Matcher {
	return append(slices.Clip(own), s.client.cfg.Matchers...)
}

func (s *Source) now() time.Time { return s.client.cfg.Now() }
