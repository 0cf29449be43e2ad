// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"slices"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

// Source is a server with the Prometheus HTTP API. It is safe for concurrent use; all users share Config.Concurrency. Its query methods
// evaluate PromQL; Capabilities returns readers of history.
type Source struct {
	*queries

	intervals *intervalDetector
	clusters  *clusterCheck
}

var (
	_ metrics.Querier   = (*Source)(nil)
	_ metrics.Prober    = (*Source)(nil)
	_ metrics.Inventory = (*Source)(nil)
)

// New checks the configuration and reads the files that it names. It sends no request.
func New(cfg Config) (*Source, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}

	q := &queries{client: c, expr: expressions{extra: c.cfg.Matchers}}
	return &Source{queries: q, intervals: &intervalDetector{queries: q}, clusters: newClusterCheck(q)}, nil
}

// Capabilities returns the readers of the server's history.
func (s *Source) Capabilities() metrics.Capabilities { return s.capabilities(nil) }

func (s *Source) capabilities(cache *ownerCache) metrics.Capabilities {
	owners := &ownerReader{queries: s.queries, clusters: s.clusters, cache: cache}
	history := &historyReader{queries: s.queries, intervals: s.intervals, owners: owners}
	events := &eventReader{queries: s.queries, owners: owners}

	out := metrics.Capabilities{
		Usage:           history,
		Days:            history,
		OOM:             events,
		Capacity:        &capacityReader{s.queries},
		Heaps:           events,
		Hourly:          &hourlyReader{queries: s.queries, owners: owners},
		Aggregates:      &aggregateReader{queries: s.queries, intervals: s.intervals, clusters: s.clusters},
		Queries:         s.queries,
		MemoryBreakdown: []metrics.UsageKind{metrics.UnreclaimableMemory, metrics.AnonymousMemory},
	}

	out.Caching = func() metrics.Capabilities {
		if cache != nil {
			return out
		}

		return s.capabilities(&ownerCache{})
	}

	return out
}

// CheckClusters returns a SeveralClustersError where the selected series mix several clusters. The readers refuse such a server as well. Single
// namespaces whose series look like those of several clusters are left out by the readers, with a warning in Stats.
func (s *Source) CheckClusters(ctx context.Context) error { return s.clusters.check(ctx) }

// LeftOut returns a text for each of some namespaces, or of all without any, that the readers leave out, because its series look like those of
// several clusters.
func (s *Source) LeftOut(ctx context.Context, namespaces []string) ([]string, error) {
	mixed, err := s.clusters.read(ctx)
	return mixed.leftOut(namespaces), err
}

// Stats returns statistics of all requests so far.
func (s *Source) Stats() metrics.Stats { return s.client.statistics() }

// Inventory implements metrics.Inventory: it returns the workloads that have pods now, or had when the server last scraped, ordered by
// name. Pods that have ended are left out. Where pods of one workload differ, as during a rollout, the most frequent amount counts, and of
// equally frequent ones the larger.
func (s *Source) Inventory(ctx context.Context, namespaces []string) ([]workload.Workload, error) {
	return s.ClusterState(namespaces).Workloads(ctx)
}

// ClusterState returns the state of the cluster in some namespaces; empty means all. It sends no request.
func (s *Source) ClusterState(namespaces []string) *ClusterState {
	return &ClusterState{queries: s.queries, owners: &ownerReader{queries: s.queries, clusters: s.clusters}, namespaces: namespaces}
}

// Probe implements metrics.Prober. It sends one query for the presence of all metrics, three for the scrape interval, one for pods without
// usage, two for the age of the history, and one for the version of the server; two more where nothing was scraped recently. An error means that the server is unusable.
func (s *Source) Probe(ctx context.Context) (metrics.SourceReport, error) {
	return (&prober{s.queries, s.intervals}).probe(ctx, true)
}

// ProbeWithoutHistory is Probe without the age of the history: SourceReport.Oldest and History stay zero. Finding the age takes the server
// longer than the rest of the probe, as it has to examine every day.
func (s *Source) ProbeWithoutHistory(ctx context.Context) (metrics.SourceReport, error) {
	return (&prober{s.queries, s.intervals}).probe(ctx, false)
}

// Selector returns a selector of a metric for a custom query, with the matchers of the configuration added. Values are quoted, so that
// quotes and braces in them have no effect.
func (s *Source) Selector(metric string, matchers ...Matcher) (string, error) {
	if metric == "" {
		return "", errors.New("the name of the metric is empty")
	}

	all := append(slices.Clip(matchers), s.expr.extra...)
	for _, m := range all {
		if err := m.Validate(); err != nil {
			return "", err
		}
	}

	if !metricName.MatchString(metric) {
		return selector("", append([]Matcher{{Label: "__name__", Op: "=", Value: metric}}, all...)...), nil
	}

	return selector(metric, all...), nil
}
