// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/recommendation/sizereport"
)

// clusterHistory reads the Prometheus of a cluster, or the files.
type clusterHistory struct {
	*viewAccess
	// reports are those of single workloads, series the results of the queries of their charts.
	reports *dashboard.Cache[historyKey, sizereport.Report]
	series  *dashboard.Cache[seriesKey, querySeries]

	mu sync.Mutex
	// discovered is the Prometheus that was found in the cluster.
	discovered *historyserver.DiscoveredServer
	// source is the Prometheus that was opened.
	source *prometheus.Source
}

func newClusterHistory(a *viewAccess) *clusterHistory {
	v := &clusterHistory{viewAccess: a}
	v.reports = dashboard.NewCache(dashboard.Limits{
		Size:     maxHistories,
		TTL:      historyTTL,
		Timeout:  readTimeout,
		Patience: historyWait,
	}, a.Clock, v.readHistory)

	v.series = dashboard.NewCache(dashboard.Limits{
		Size:     maxSeries,
		TTL:      seriesTTL,
		Timeout:  readTimeout,
		Patience: historyWait,
	}, a.Clock, v.readSeries)

	return v
}

// compute computes recommendations as crane recommend does: of all workloads, or of one.
func (v *clusterHistory) compute(ctx context.Context, target contract.Target) (*sizereport.Report, error) {
	c := &sizereport.Collector{
		Prometheus:      v.server(),
		Cache:           v.Cache,
		From:            v.From,
		Resource:        v.Resource,
		Kubernetes:      v.Personal,
		SelectWorkloads: func(all []workload.Workload) ([]workload.Workload, error) { return all, nil },
		Policies:        v.Policies,
		HistoryLength:   v.Policies.Window(),
		Prices:          v.Prices,
		KeepInputs:      true,
		Output:          io.Discard,
	}

	// The page of a workload shows replays, which are too slow for the whole worklist.
	if target.Name != "" {
		if target.Namespace != "" {
			c.Namespaces = []string{target.Namespace}
		}

		c.WithReplays = true
		c.SelectWorkloads = func(all []workload.Workload) ([]workload.Workload, error) {
			return slices.DeleteFunc(slices.Clone(all), func(w workload.Workload) bool {
				return w.Name != target.Name || !workloadname.KindMatches(target.Kind, w.Kind)
			}), nil
		}
	} else if err := v.limit(ctx, c); err != nil {
		return nil, err
	}

	found, err := c.Collect(ctx)
	if err != nil {
		return nil, historyFailure(err)
	}

	v.keepServer(c.Prometheus)
	// The address of Prometheus is for administrators.
	if v.Personal.Personal() {
		found.Sources.History = "Prometheus"
	}

	return found, nil
}

// limit limits the recommendations to the namespaces of the scope.
func (v *clusterHistory) limit(ctx context.Context, c *sizereport.Collector) error {
	if v.fromFiles() {
		return nil
	}

	scope, err := v.namespaces(ctx)
	switch {
	case errors.Is(err, clusteraccess.ErrNoKubeconfig): // Prometheus alone
		c.Namespaces = v.OnlyNamespaces
	case err != nil:
		return err
	case scope[0] != "":
		c.Namespaces = scope
	}

	return nil
}

// server returns the flags of Prometheus, with the server that an earlier request discovered.
func (v *clusterHistory) server() *historyserver.Server {
	v.mu.Lock()
	defer v.mu.Unlock()

	flags := *v.Prometheus
	flags.Discovered = v.discovered
	return &flags
}

// keepServer keeps the discovered server for the next request.
func (v *clusterHistory) keepServer(flags *historyserver.Server) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.discovered = flags.Discovered
}

// historyFailure returns the failure of a history that cannot be read, without the address of Prometheus. Errors of the API server keep
// their own kind.
func historyFailure(err error) error {
	failure := dashboard.FailureOf(err)
	if failure.Body.Reason == contract.ReasonTimeout {
		return dashboard.NewResponseError(failure.Status, failure.Body.Reason, "the request took too long: "+metrics.PublicMessage(err), failure.Body.Next)
	}
	if failure.Body.Reason != contract.ReasonInternal {
		return err
	}

	return dashboard.NewResponseError(http.StatusServiceUnavailable, contract.ReasonHistoryUnavailable, metrics.PublicMessage(err),
		"crane doctor reports what is missing; crane dashboard --prometheus sets another server")
}

// openHistory returns the Prometheus of the flags, or the one that is discovered in the cluster.
func (v *clusterHistory) openHistory(ctx context.Context) (*prometheus.Source, error) {
	v.mu.Lock()
	open := v.source
	v.mu.Unlock()

	if open != nil {
		return open, nil
	}

	flags := v.server()
	if err := flags.Discover(ctx, v.Personal, func(string) {}); err != nil {
		return nil, historyFailure(err)
	}

	open, err := flags.Open()
	if err != nil {
		return nil, historyFailure(err)
	}

	v.keepServer(flags)
	v.mu.Lock()
	defer v.mu.Unlock()

	v.source = open
	return open, nil
}

// historyKey names the report of one workload.
type historyKey struct {
	target contract.Target
	// cluster is set if it is computed for a person who may read the nodes.
	cluster bool
}

func (v *clusterHistory) readHistory(ctx context.Context, key historyKey) (*sizereport.Report, error) {
	return v.compute(ctx, key.target)
}

// workload returns the report of one workload, shared between requests.
func (v *clusterHistory) workload(ctx context.Context, target contract.Target) (*sizereport.Report, string, error) {
	person, _ := dashboard.PersonOf(ctx)
	found, _, stale, err := v.reports.Get(ctx, historyKey{target, person.Cluster})
	if err != nil {
		return nil, "", err
	}

	if len(found.Items) == 0 {
		return nil, "", dashboard.NewResponseError(http.StatusNotFound, contract.ReasonNotFound,
			fmt.Sprintf("there is no workload %s %s/%s", target.Kind, target.Namespace, target.Name), "go back to the worklist")
	}

	return found, stale, nil
}
