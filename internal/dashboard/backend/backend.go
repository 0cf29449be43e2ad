// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backend answers the dashboard for one cluster, with the rights of a kubeconfig or of each person, or for a directory of
// files.
package backend

import (
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
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

// View answers the dashboard for one cluster with the rights of a kubeconfig, or for a directory of files. Each page is a type of its own.
type View struct {
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

// New returns a view of a cluster or of the files of the settings.
func New(config Config) *View {
	a := &viewAccess{Config: config}
	a.scope = shared(a, a.readScope, clusterTTL)
	history := newClusterHistory(a)
	worklist := newWorklistView(a, history)
	status := newStatusView(a, worklist)
	costs := newCostView(a, history)

	return &View{
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
		Clock:    a.Clock,
	}
}

// Config has the settings of a view.
type Config struct {
	// ClusterName is that of the cluster on the pages.
	ClusterName string
	// Access reads Crane's kinds, for all users together. personal reads and writes everything else; in a cluster with the token of the
	// person who asks, otherwise it is the same.
	Access, Personal *clusteraccess.Access
	Policies         rightsize.PolicySet
	Prices           *cost.PriceBook
	Clock            clock.Clock

	// OnlyNamespaces are the namespaces to read; if empty, all that the user may list.
	OnlyNamespaces []string
	// Prometheus has the history. from is a directory of CSV files that is read instead of a cluster, of one resource.
	Prometheus     *historyserver.Server
	Cache          profile.CacheConfig
	From, Resource string
	// CranedNamespace is the namespace of craned's Deployment and of its records.
	CranedNamespace string
	// Scheduler is the address of the explanations of crane-scheduler; if empty, its pods are found.
	Scheduler string
}

// viewAccess has the settings of a view and the namespaces that it reads.
type viewAccess struct {
	Config

	// scope are the namespaces that are read; a single empty one for all.
	scope *dashboard.Shared[[]string]
}

// readScope returns the namespaces that the dashboard reads: those of --namespace; otherwise all, or the namespace of the context where the
// user may not list Recommendations and pods of all namespaces.
func (v *viewAccess) readScope(ctx context.Context) (*[]string, error) {
	if len(v.OnlyNamespaces) > 0 {
		return &v.OnlyNamespaces, nil
	}

	all := []string{""}
	if v.Access.Fixed != nil {
		return &all, nil
	}

	clients, _, err := v.Access.Clientset()
	if err != nil {
		return nil, err
	}

	// Without both rights in all namespaces, the pages show the namespace of the context instead of failing.
	for _, right := range []dashboard.Right{{Verb: "list", Group: analysisv1alpha1.GroupVersion.Group, Resource: "recommendations"}, {Verb: "list", Resource: "pods"}} {
		allowed, err := dashboard.SelfReview(ctx, clients, right)
		if err != nil {
			return nil, unavailable(err)
		}

		if !allowed {
			namespace, err := v.Access.DefaultNamespace()
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
func (v *viewAccess) Name() string { return v.ClusterName }

func (v *viewAccess) fromFiles() bool { return v.From != "" }

// origin names the API server as the source.
func (v *viewAccess) origin() contract.Origin {
	return contract.Origin{AsOf: v.Clock.Now().Unix(), Source: v.Personal.ServerName()}
}

// Objects implements dashboard.Backend.
func (v *viewAccess) Objects() (client.Client, error) {
	if v.fromFiles() {
		return nil, dashboard.NotServed("files have no cluster", "")
	}

	return v.Personal.ObjectClient()
}

// unavailable returns the failure of a request to the API server that got no answer of it. Its text is for everybody who may log in.
func unavailable(err error) error {
	failure := dashboard.FailureOf(err)
	if failure.Body.Reason != contract.ReasonInternal {
		return err
	}

	return dashboard.NewResponseError(http.StatusServiceUnavailable, contract.ReasonAPIServerUnavailable, "API server: "+metrics.PublicMessage(err), "the page repeats the request")
}
