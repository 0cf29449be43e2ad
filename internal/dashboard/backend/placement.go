// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/client-go/rest"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/nodeload/schedulerclient"
	"crane.io/crane/pkg/nodeload"
)

// maxPlacementNodes bounds the nodes of an attempt.
const maxPlacementNodes = 200

// placementView asks the scheduler why it placed pods where they are.
type placementView struct{ *viewAccess }

// Placement implements dashboard.Backend.
func (v *placementView) Placement(ctx context.Context, namespace, pod string) (contract.Placement, error) {
	out := contract.Placement{Origin: v.origin(), Pod: namespace + "/" + pod, Attempts: []contract.PlacementAttempt{}}
	if v.fromFiles() {
		return out, dashboard.NotServed("files have no scheduler", "")
	}

	access := *v.Personal
	if p, ok := dashboard.PersonOf(ctx); ok && access.Fixed != nil {
		access.Fixed = withToken(*access.Fixed, p.Token)
	}

	scheduler := schedulerclient.Client{Access: &access, Namespace: v.CranedNamespace, Port: schedulerclient.DefaultPort, Address: v.Scheduler}
	found, err := scheduler.Explanations(ctx, namespace, pod)
	if err != nil {
		return out, placementFailure(err)
	}

	out.Source = "crane-scheduler"
	for i := range found {
		out.Attempts = append(out.Attempts, attemptOf(&found[i]))
	}

	return out, nil
}

// withToken returns an access whose configuration has the token itself: the requests of a forwarded port have no context with a person.
func withToken(access clusteraccess.Fixed, token string) *clusteraccess.Fixed {
	config := rest.AnonymousClientConfig(access.Config)
	config.WrapTransport = nil
	config.BearerToken = token
	access.Config = config

	return &access
}

func placementFailure(err error) error {
	next := "the scheduler keeps the latest attempts only; the pod must have schedulerName: crane-scheduler"
	if errors.Is(err, schedulerclient.ErrPodNotRecorded) {
		return dashboard.NewResponseError(http.StatusNotFound, contract.ReasonNotFound, err.Error(), next)
	}

	if errors.Is(err, schedulerclient.ErrNoScheduler) {
		return dashboard.NotServed(err.Error(), "install crane-scheduler")
	}

	// The error of a forwarded port has the message of the API server alone.
	if forbidden := dashboard.Forbidden(err); forbidden.Body.Right != "" {
		return forbidden
	}

	return unavailable(err)
}

func attemptOf(e *nodeload.Explanation) contract.PlacementAttempt {
	out := contract.PlacementAttempt{
		At:          dashboard.Unix(e.Time),
		Profile:     e.Profile,
		Strategy:    string(e.Strategy),
		Outcome:     e.Outcome,
		Node:        e.Node,
		CPUMilli:    int64(e.CPU),
		MemoryBytes: int64(e.Memory),
		Basis:       schedulerclient.BasisText(e.Basis),
		FreshNodes:  e.Fresh,
		StaleNodes:  e.Stale,
		AbsentNodes: e.Absent,
		OtherNodes:  e.NotAsked,
		NodeCount:   len(e.Nodes),
		Nodes:       []contract.PlacementNode{},
	}

	// A large cluster has more nodes than a page shows; NodeCount has them all.
	for i := range e.Nodes[:min(len(e.Nodes), maxPlacementNodes)] {
		n := &e.Nodes[i]
		out.Nodes = append(out.Nodes, contract.PlacementNode{
			Name:    n.Name,
			Verdict: string(n.Verdict),
			Score:   n.Score,
			Reason:  n.Reason(),
		})
	}

	return out
}
