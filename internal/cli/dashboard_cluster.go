// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
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

// clusterView answers the dashboard for one cluster with the rights of a kubeconfig, or for a directory of files. Each page is a type of its own.
type clusterView struct {
	*viewAccess
	*worklistView
	*statusView
	*costView
	*overviewView
	*autoscalingView
	*ruleView
	*nodeView
	*placementView
	*workloadView
	*seriesView
	*actionView
}

func newClusterView(config viewConfig) *clusterView {
	a := &viewAccess{viewConfig: config}
	a.scope = shared(a, a.readScope, clusterTTL)
	history := newClusterHistory(a)
	worklist := newWorklistView(a, history)
	status := newStatusView(a, worklist)
	costs := newCostView(a, history)

	return &clusterView{
		a, worklist, status, costs, &overviewView{a, costs}, newAutoscalingView(a, history), newRuleView(a), newNodeView(a), &placementView{a},
		&workloadView{a, worklist, status, history}, &seriesView{a, history}, &actionView{a, worklist},
	}
}

func shared[T any](a *viewAccess, read func(context.Context) (*T, error), ttl time.Duration) *dashboard.Shared[T] {
	return &dashboard.Shared[T]{
		Read:     read,
		TTL:      ttl,
		Timeout:  readTimeout,
		Patience: firstWait,
		Clock:    a.clock,
	}
}

// viewConfig has the settings of a view.
type viewConfig struct {
	// name is that of the cluster on the pages.
	name string
	// access reads Crane's kinds, for all users together. personal reads and writes everything else; in a cluster with the token of the
	// person who asks, otherwise it is the same.
	access, personal *kubernetesFlags
	policies         rightsize.PolicySet
	prices           *cost.PriceBook
	clock            clock.Clock

	// onlyNamespaces are the namespaces to read; if empty, all that the user may list.
	onlyNamespaces []string
	// prometheus has the history. from is a directory of CSV files that is read instead of a cluster, of one resource.
	prometheus     *prometheusFlags
	cache          cacheFlags
	from, resource string
	// cranedNamespace is the namespace of craned's Deployment and of its records.
	cranedNamespace string
	// scheduler is the address of the explanations of crane-scheduler; if empty, its pods are found.
	scheduler string
}

// viewAccess has the settings of a view and the namespaces that it reads.
type viewAccess struct {
	viewConfig

	// scope are the namespaces that are read; a single empty one for all.
	scope *dashboard.Shared[[]string]
}

// readScope returns the namespaces that the dashboard reads: those of --namespace; otherwise all, or the namespace of the context where the
// user may not list Recommendations and pods of all namespaces.
func (v *viewAccess) readScope(ctx context.Context) (*[]string, error) {
	if len(v.onlyNamespaces) > 0 {
		return &v.onlyNamespaces, nil
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
func (v *viewAccess) namespaces(ctx context.Context) ([]string, error) {
	found, _, _, err := v.scope.Get(ctx)
	if err != nil {
		return nil, err
	}

	return *found, nil
}

// Name implements dashboard.Backend.
func (v *viewAccess) Name() string { return v.name }

func (v *viewAccess) fromFiles() bool { return v.from != "" }

// origin names the API server as the source.
func (v *viewAccess) origin() contract.Origin {
	return contract.Origin{AsOf: v.clock.Now().Unix(), Source: v.personal.serverName()}
}

// Objects implements dashboard.Backend.
func (v *viewAccess) Objects() (client.Client, error) {
	if v.fromFiles() {
		return nil, dashboard.NotServed("files have no cluster", "")
	}

	return v.personal.objectClient()
}

// unavailable returns the failure of a request to the API server that got no answer of it.
func unavailable(host string, err error) error {
	failure := dashboard.FailureOf(err)
	if failure.Body.Reason != contract.ReasonInternal {
		return err
	}

	return dashboard.NewResponseError(http.StatusServiceUnavailable, contract.ReasonAPIServerUnavailable, fmt.Sprintf("API server %s: %v", host, err), "the page repeats the request")
}
