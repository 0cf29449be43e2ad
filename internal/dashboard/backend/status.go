// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/installation"
)

// statusView answers what the user may do in a cluster and what the components of Crane report.
type statusView struct {
	*viewAccess
	worklist *worklistView
	cluster  *dashboard.Shared[contract.Cluster]
}

func newStatusView(a *viewAccess, worklist *worklistView) *statusView {
	v := &statusView{viewAccess: a, worklist: worklist}
	v.cluster = shared(a, v.describe, clusterTTL)
	return v
}

// Cluster implements dashboard.Backend.
func (v *statusView) Cluster(ctx context.Context) contract.Cluster {
	found, _, stale, err := v.cluster.Get(ctx)
	if err != nil {
		return contract.Cluster{Name: v.ClusterName, Currency: v.Prices.Currency, Error: dashboard.FailureOf(err).Body.Message}
	}

	out := *found
	if stale != "" {
		out.Error = stale
	}

	return out
}

// describe reads what the user may do.
func (v *statusView) describe(ctx context.Context) (*contract.Cluster, error) {
	out := &contract.Cluster{Name: v.ClusterName, Currency: v.Prices.Currency, History: true}
	if v.fromFiles() {
		out.Rights.ClusterTotals = true
		return out, nil
	}

	_, err := v.Access.Config()
	if errors.Is(err, clusteraccess.ErrNoKubeconfig) && v.Prometheus.Address != "" {
		out.Rights.ClusterTotals = true // Prometheus alone: workloads are those of kube-state-metrics.
		return out, nil
	}
	if err != nil {
		return nil, err
	}

	rows, _, _, err := v.worklist.objects.Get(ctx)
	out.CraneInstalled = err == nil && rows != nil && len(rows.Rows) > 0
	if v.Access.Fixed != nil {
		out.CraneInstalled = true // The rights are those of each person.
		return out, nil
	}

	return out, v.describeRights(ctx, out)
}

// describeRights sets the rights of the user of the kubeconfig, in the namespaces of the scope.
func (v *statusView) describeRights(ctx context.Context, out *contract.Cluster) error {
	clients, _, err := v.Access.Clientset()
	if err != nil {
		return err
	}

	scope, err := v.namespaces(ctx)
	if err != nil {
		return err
	}

	group := analysisv1alpha1.GroupVersion.Group
	for _, ask := range []struct {
		right   dashboard.Right
		allowed *bool
	}{
		{dashboard.Right{Verb: "list", Group: group, Resource: "recommendations"}, &out.Rights.ClusterTotals},
		{dashboard.Right{Verb: "list", Resource: "nodes"}, &out.Rights.Nodes},
		{dashboard.Right{
			Verb:      "patch",
			Group:     group,
			Resource:  "recommendations",
			Namespace: scope[0],
		}, &out.Rights.Adopt},
		{dashboard.Right{Verb: "list", Group: group, Resource: "recommendationrules"}, &out.Rights.Rules},
		{dashboard.Right{Verb: "create", Group: group, Resource: "recommendationrules"}, &out.Rights.CreateRules},
	} {
		if *ask.allowed, err = dashboard.SelfReview(ctx, clients, ask.right); err != nil {
			return unavailable(err)
		}
	}

	// Totals of some namespaces would look like those of the cluster.
	if scope[0] != "" {
		out.Rights.Namespaces = scope
		out.Rights.ClusterTotals = false
	}

	out.Rights.Adopt = out.Rights.Adopt && out.CraneInstalled
	return nil
}

// Health implements dashboard.Backend.
func (v *statusView) Health(ctx context.Context) (contract.Health, error) {
	out := contract.Health{Origin: v.origin(), Checks: []contract.Check{}, Server: []contract.Check{}}
	if v.fromFiles() {
		return out, dashboard.NotServed("files have no cluster", "")
	}

	c, err := v.Personal.ObjectClient()
	if err != nil {
		return out, err
	}

	found, err := installation.Read(ctx, c, v.CranedNamespace, v.Clock.Now())
	if err != nil {
		return out, unavailable(err)
	}

	for _, c := range found {
		out.Checks = append(out.Checks, contract.Check{
			Name:   c.Name,
			Status: string(c.Status),
			Detail: c.Detail,
			Next:   c.Advice,
		})
	}

	// The server's own check says how old the shared worklist is.
	_, at, stale, err := v.worklist.objects.Get(ctx)
	switch {
	case err != nil:
		out.Server = append(out.Server, contract.Check{Name: "recommendations", Status: string(installation.Warn), Detail: dashboard.FailureOf(err).Body.Message})
	case stale != "":
		out.Server = append(out.Server, contract.Check{Name: "recommendations", Status: string(installation.Warn), Detail: stale})
	default:
		out.Server = append(out.Server, contract.Check{Name: "recommendations", Status: string(installation.OK), Detail: "read at " + at.UTC().Format("15:04:05") + " UTC, shared by all pages for " + rowsTTL.String()})
	}

	return out, nil
}
