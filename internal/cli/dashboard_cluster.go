// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// How long data are shared between requests, and the longest read of each.
const (
	rowsTTL      = 30 * time.Second
	reportTTL    = 30 * time.Minute
	historyTTL   = 10 * time.Minute
	clusterTTL   = 30 * time.Second
	costTTL      = 5 * time.Minute
	readTimeout  = time.Minute
	reportLimit  = 30 * time.Minute
	firstWait    = 10 * time.Second
	historyWait  = time.Minute
	maxHistories = 32
	// A window of days reads all samples of all pods.
	costLimit = 10 * time.Minute
	maxCosts  = 6
	// seriesTTL is short because a window that ends now gets a new end each minute. maxSeries queries with 5 containers take 25 MB.
	seriesTTL = time.Minute
	maxSeries = 128
)

// clusterView answers the dashboard for one cluster with the rights of a kubeconfig, or for a directory of files.
type clusterView struct {
	name    string
	options *dashboardOptions
	// access reads Crane's kinds, for all users together. personal reads and writes everything else; in a cluster with the token of the
	// person who asks, otherwise it is the same.
	access, personal *kubernetesFlags
	policies         rightsize.PolicySet
	prices           *cost.PriceBook
	clock            clock.Clock

	// objects are the Recommendations of the cluster; report is computed from the history where there are none.
	objects *dashboard.Shared[contract.Worklist]
	report  *dashboard.Shared[report]
	cluster *dashboard.Shared[contract.Cluster]
	// costs are by the window of the mean usage; labels are those of the workloads.
	costs       *dashboard.Cache[time.Duration, costReport]
	labels      *dashboard.Shared[workloadLabels]
	autoscalers *dashboard.Shared[contract.Autoscaling]
	rules       *dashboard.Shared[contract.RuleList]
	nodes       *dashboard.Shared[contract.NodeList]
	// scope are the namespaces that are read; a single empty one for all.
	scope *dashboard.Shared[[]string]
	// histories are the reports of single workloads, series the results of the queries of their charts.
	histories *dashboard.Cache[historyKey, report]
	series    *dashboard.Cache[seriesKey, querySeries]
	// forecasts are the histories of the metrics of autoscalers.
	forecasts *dashboard.Cache[forecastKey, series.Series]

	mu sync.Mutex
	// discovered is the Prometheus that was found in the cluster.
	discovered *discoveredServer
	// source is the Prometheus that was opened.
	source *prometheus.Source
	// computed is the worklist of computedFrom.
	computedFrom *report
	computed     *contract.Worklist
}

func newClusterView(name string, o *dashboardOptions, access *kubernetesFlags, policies rightsize.PolicySet, prices *cost.PriceBook) *clusterView {
	v := &clusterView{name: name, options: o, access: access, personal: access, policies: policies, prices: prices, clock: clock.RealClock{}}
	v.objects = shared(v, v.readObjects, rowsTTL)
	v.report = &dashboard.Shared[report]{
		Read: func(ctx context.Context) (*report, error) { return v.compute(ctx, contract.Target{}) },
		TTL:  reportTTL, Timeout: reportLimit, Patience: firstWait, Clock: v.clock,
	}
	v.cluster = shared(v, v.describe, clusterTTL)
	v.costs = dashboard.NewCache(dashboard.Limits{Size: maxCosts, TTL: costTTL, Timeout: costLimit, Patience: firstWait}, v.clock, v.readCosts)
	v.labels = shared(v, v.readLabels, costTTL)
	v.autoscalers = shared(v, v.readAutoscalers, rowsTTL)
	v.rules = shared(v, v.readRules, rowsTTL)
	v.nodes = shared(v, v.readNodes, rowsTTL)
	v.scope = shared(v, v.readScope, clusterTTL)
	v.histories = dashboard.NewCache(dashboard.Limits{Size: maxHistories, TTL: historyTTL, Timeout: readTimeout, Patience: historyWait}, v.clock, v.readHistory)
	v.forecasts = dashboard.NewCache(dashboard.Limits{Size: maxHistories, TTL: historyTTL, Timeout: readTimeout, Patience: historyWait}, v.clock, v.readForecastHistory)
	v.series = dashboard.NewCache(dashboard.Limits{Size: maxSeries, TTL: seriesTTL, Timeout: readTimeout, Patience: historyWait}, v.clock, v.readSeries)
	return v
}

func shared[T any](v *clusterView, read func(context.Context) (*T, error), ttl time.Duration) *dashboard.Shared[T] {
	return &dashboard.Shared[T]{Read: read, TTL: ttl, Timeout: readTimeout, Patience: firstWait, Clock: v.clock}
}

// readScope returns the namespaces that the dashboard reads: those of --namespace; otherwise all, or the namespace of the context where the
// user may not list Recommendations and pods of all namespaces.
func (v *clusterView) readScope(ctx context.Context) (*[]string, error) {
	if len(v.options.namespaces) > 0 {
		return &v.options.namespaces, nil
	}
	all := []string{""}
	if v.access.fixed != nil {
		return &all, nil
	}
	clients, config, err := v.access.clientset()
	if err != nil {
		return nil, err
	}
	for _, right := range []dashboard.Right{{Verb: "list", Group: analysisv1alpha1.GroupVersion.Group, Resource: "recommendations"}, {Verb: "list", Resource: "pods"}} {
		allowed, err := dashboard.SelfReview(ctx, clients, right)
		if err != nil {
			return nil, unavailable(config.Host, err)
		}
		if !allowed {
			namespace, err := v.access.defaultNamespace()
			return &[]string{namespace}, err
		}
	}
	return &all, nil
}

// namespaces returns the scope.
func (v *clusterView) namespaces(ctx context.Context) ([]string, error) {
	found, _, _, err := v.scope.Get(ctx)
	if err != nil {
		return nil, err
	}
	return *found, nil
}

// Name implements dashboard.Backend.
func (v *clusterView) Name() string { return v.name }

// Cluster implements dashboard.Backend.
func (v *clusterView) Cluster(ctx context.Context) contract.Cluster {
	found, _, stale, err := v.cluster.Get(ctx)
	if err != nil {
		return contract.Cluster{Name: v.name, Currency: v.prices.Currency, Error: err.Error()}
	}
	out := *found
	if stale != "" {
		out.Error = stale
	}
	return out
}

func (v *clusterView) fromFiles() bool { return v.options.from != "" }

// describe reads what the user may do.
func (v *clusterView) describe(ctx context.Context) (*contract.Cluster, error) {
	out := &contract.Cluster{Name: v.name, Currency: v.prices.Currency, History: true}
	if v.fromFiles() {
		out.Rights.ClusterTotals = true
		return out, nil
	}
	_, err := v.access.config()
	if errors.Is(err, errNoKubeconfig) && v.options.prometheus.address != "" {
		out.Rights.ClusterTotals = true // Prometheus alone: workloads are those of kube-state-metrics.
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	rows, _, _, err := v.objects.Get(ctx)
	out.CraneInstalled = err == nil && rows != nil && len(rows.Rows) > 0
	if v.access.fixed != nil {
		out.CraneInstalled = true // The rights are those of each person.
		return out, nil
	}
	return out, v.describeRights(ctx, out)
}

// describeRights sets the rights of the user of the kubeconfig, in the namespaces of the scope.
func (v *clusterView) describeRights(ctx context.Context, out *contract.Cluster) error {
	clients, config, err := v.access.clientset()
	if err != nil {
		return err
	}
	scope, err := v.namespaces(ctx)
	if err != nil {
		return err
	}
	group := analysisv1alpha1.GroupVersion.Group
	for _, ask := range []struct {
		right dashboard.Right
		into  *bool
	}{
		{dashboard.Right{Verb: "list", Group: group, Resource: "recommendations"}, &out.Rights.ClusterTotals},
		{dashboard.Right{Verb: "list", Resource: "nodes"}, &out.Rights.Nodes},
		{dashboard.Right{Verb: "patch", Group: group, Resource: "recommendations", Namespace: scope[0]}, &out.Rights.Adopt},
		{dashboard.Right{Verb: "list", Group: group, Resource: "recommendationrules"}, &out.Rights.Rules},
		{dashboard.Right{Verb: "create", Group: group, Resource: "recommendationrules"}, &out.Rights.CreateRules},
	} {
		if *ask.into, err = dashboard.SelfReview(ctx, clients, ask.right); err != nil {
			return unavailable(config.Host, err)
		}
	}
	if scope[0] != "" {
		out.Rights.Namespaces, out.Rights.ClusterTotals = scope, false
	}
	out.Rights.Adopt = out.Rights.Adopt && out.CraneInstalled
	return nil
}

// unavailable returns the failure of a request to the API server that got no answer of it.
func unavailable(host string, err error) error {
	failure := dashboard.FailureOf(err)
	if failure.Body.Reason != contract.ReasonInternal {
		return err
	}
	return dashboard.NewResponseError(http.StatusServiceUnavailable, contract.ReasonAPIServerUnavailable, fmt.Sprintf("API server %s: %v", host, err), "the page repeats the request")
}

// readObjects lists the Recommendations page by page and keeps only their rows. A cluster without the kind has none.
func (v *clusterView) readObjects(ctx context.Context) (*contract.Worklist, error) {
	if v.fromFiles() {
		return &contract.Worklist{}, nil
	}
	c, err := v.access.objectClient()
	if errors.Is(err, errNoKubeconfig) && v.options.prometheus.address != "" {
		return &contract.Worklist{}, nil
	}
	if err != nil {
		return nil, err
	}
	scope, err := v.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	rows := []contract.Row{}
	var list analysisv1alpha1.RecommendationList
	for _, namespace := range scope {
		for more := true; more; more = list.Continue != "" {
			token := list.Continue
			list = analysisv1alpha1.RecommendationList{}
			err := c.List(ctx, &list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(token))
			if meta.IsNoMatchError(err) {
				break
			}
			if err != nil {
				return nil, unavailable(v.access.serverName(), err)
			}
			for i := range list.Items {
				rows = append(rows, dashboard.RowOf(v.name, &list.Items[i]))
			}
		}
	}
	out := dashboard.NewWorklist(slices.Clip(rows), v.prices.Currency, contract.Origin{
		AsOf: v.clock.Now().Unix(), Source: "Recommendations, " + v.access.serverName(),
	})
	out.Hidden = scope[0] != ""
	return out, nil
}

// Worklist implements dashboard.Backend.
func (v *clusterView) Worklist(ctx context.Context) (*contract.Worklist, error) {
	rows, _, stale, err := v.objects.Get(ctx)
	if err != nil {
		return nil, err
	}
	if len(rows.Rows) > 0 || v.access.fixed != nil {
		return withStale(rows, stale), nil
	}
	found, _, stale, err := v.report.Get(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.computedFrom != found {
		v.computedFrom, v.computed = found, v.rowsOf(found)
	}
	return withStale(v.computed, stale), nil
}

// withStale returns a worklist with the reason for being stale; the same one if there is none.
func withStale(list *contract.Worklist, stale string) *contract.Worklist {
	if stale == "" {
		return list
	}
	out := *list
	out.Stale = stale
	return &out
}
