// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
)

// maxFiltered bounds the filtered worklists that are kept, so that they are encoded once.
const maxFiltered = 8

// Guard answers with what the person of the context may read. Data that the dashboard reads with its own rights, or shares between
// persons, are filtered by access reviews; everything else the backend reads and writes with the token of the person. The methods are
// listed one by one, so that a new one of Backend is not served without a decision about its rights.
type Guard struct {
	backend Backend
	reviews *Reviews

	mu       sync.Mutex
	filtered []filteredWorklist
}

// filteredWorklist is the part of a worklist in some namespaces.
type filteredWorklist struct {
	from       *contract.Worklist
	namespaces string
	list       *contract.Worklist
}

// NewGuard returns a guard of a backend.
func NewGuard(backend Backend, reviews *Reviews) *Guard {
	return &Guard{backend: backend, reviews: reviews}
}

func listRecommendations(namespace string) Right {
	return Right{
		Verb:      "list",
		Group:     analysisv1alpha1.GroupVersion.Group,
		Resource:  "recommendations",
		Namespace: namespace,
	}
}

// clusterRights are required for what adds up or names objects of all namespaces: costs, nodes and totals.
func clusterRights() []Right {
	return []Right{{Verb: "list", Resource: "nodes"}, {Verb: "list", Resource: "pods"}}
}

// Name implements Backend.
func (g *Guard) Name() string { return g.backend.Name() }

// Cluster implements Backend. The rights are those of the person.
func (g *Guard) Cluster(ctx context.Context) contract.Cluster {
	out := g.backend.Cluster(ctx)
	out.Rights = contract.Rights{}

	rights, err := g.rights(ctx)
	if err != nil {
		out.Error = FailureOf(err).Body.Message
		return out
	}

	out.Rights = rights
	out.Rights.Adopt = rights.Adopt && out.CraneInstalled
	return out
}

func (g *Guard) rights(ctx context.Context) (out contract.Rights, err error) {
	rules := Right{Group: analysisv1alpha1.GroupVersion.Group, Resource: "recommendationrules"}
	list := rules
	create := rules
	patch := listRecommendations("")

	list.Verb = "list"
	create.Verb = "create"
	patch.Verb = "patch"
	for _, ask := range []struct {
		right   Right
		allowed *bool
	}{{clusterRights()[0], &out.Nodes}, {clusterRights()[1], &out.ClusterTotals}, {list, &out.Rules}, {create, &out.CreateRules}, {patch, &out.Adopt}} {
		if *ask.allowed, err = g.reviews.Allowed(ctx, ask.right); err != nil {
			return out, err
		}
	}

	// Totals include the cost of nodes.
	out.ClusterTotals = out.ClusterTotals && out.Nodes
	in, all, err := g.readable(ctx)
	if err != nil || all {
		return out, err
	}

	out.Namespaces = slices.Sorted(maps.Keys(in))
	// One namespace with the right is enough to offer the action; the API server checks each write.
	for _, namespace := range out.Namespaces {
		if out.Adopt {
			break
		}

		patch.Namespace = namespace
		if out.Adopt, err = g.reviews.Allowed(ctx, patch); err != nil {
			return out, err
		}
	}

	return out, nil
}

// readable returns the namespaces with Recommendations that the person may list.
func (g *Guard) readable(ctx context.Context) (in map[string]bool, all bool, err error) {
	list, err := g.backend.Worklist(ctx)
	if err != nil {
		return nil, false, err
	}

	return g.reviews.allowedIn(ctx, listRecommendations(""), namespacesOf(list.Rows, func(r contract.Row) string { return r.Namespace }))
}

func namespacesOf[T any](objects []T, namespace func(T) string) []string {
	seen := map[string]bool{}
	for i := range objects {
		seen[namespace(objects[i])] = true
	}

	return slices.Sorted(maps.Keys(seen))
}

// Worklist implements Backend. Persons with the same namespaces get the same pointer until the data change.
func (g *Guard) Worklist(ctx context.Context) (*contract.Worklist, error) {
	list, err := g.backend.Worklist(ctx)
	if err != nil {
		return nil, err
	}

	in, all, err := g.readable(ctx)
	if err != nil {
		return nil, err
	}

	if all {
		return list, nil
	}

	if len(in) == 0 {
		return nil, forbidden(listRecommendations(""))
	}

	key := strings.Join(slices.Sorted(maps.Keys(in)), ",")
	g.mu.Lock()
	defer g.mu.Unlock()

	// Persons with the same namespaces share the filtered list.
	for _, f := range g.filtered {
		if f.from == list && f.namespaces == key {
			return f.list, nil
		}
	}

	var rows []contract.Row
	for _, row := range list.Rows {
		if in[row.Namespace] {
			rows = append(rows, row)
		}
	}

	out := NewWorklist(rows, list.Currency, list.Origin)
	out.Hidden = true
	g.filtered = append(g.filtered, filteredWorklist{list, key, out})
	g.filtered = g.filtered[max(0, len(g.filtered)-maxFiltered):]

	return out, nil
}

// Overview implements Backend. The cost of the cluster is shared between persons who may read all pods and nodes; others get the right that
// they lack. Records of craned are read with the token of the person.
func (g *Guard) Overview(ctx context.Context, list *contract.Worklist) (contract.Overview, error) {
	p, _ := PersonOf(ctx)
	lacking := g.reviews.require(ctx, clusterRights()...)
	p.Cluster = lacking == nil

	if lacking != nil && FailureOf(lacking).Body.Reason != contract.ReasonForbidden {
		return contract.Overview{}, lacking
	}

	out, err := g.backend.Overview(WithPerson(ctx, p), list)
	if err != nil || lacking == nil {
		return out, err
	}

	out.Missing = maps.Clone(out.Missing)
	if out.Missing == nil {
		out.Missing = map[string]contract.Error{}
	}

	out.Missing[contract.MissingCost] = FailureOf(lacking).Body
	return out, nil
}

// mayReadWorkload requires the rights to the objects from which the page of a workload is made. Its series are those of its pods. The
// returned context says whether the person may read the nodes as well.
func (g *Guard) mayReadWorkload(ctx context.Context, target contract.Target) (context.Context, error) {
	if target.Namespace == "" {
		return ctx, NewResponseError(http.StatusBadRequest, contract.ReasonInvalid, "the namespace of the workload is required", "")
	}

	resource, err := g.resourceOf(ctx, target)
	if err != nil {
		return ctx, err
	}

	if err := g.reviews.require(ctx, listRecommendations(target.Namespace), Right{Verb: "list", Resource: "pods", Namespace: target.Namespace},
		Right{
			Verb:      "list",
			Group:     resource.Group,
			Resource:  resource.Resource,
			Namespace: target.Namespace,
		}); err != nil {
		return ctx, err
	}

	return g.withClusterRight(ctx)
}

// withClusterRight returns a context that records whether the person may read all nodes and pods.
func (g *Guard) withClusterRight(ctx context.Context) (context.Context, error) {
	p, _ := PersonOf(ctx)
	err := g.reviews.require(ctx, clusterRights()...)
	p.Cluster = err == nil

	if err != nil && FailureOf(err).Body.Reason != contract.ReasonForbidden {
		return ctx, err
	}

	return WithPerson(ctx, p), nil
}

// resourceOf returns the resource of a workload: that of Kubernetes' own kinds, others by the API version in the worklist.
func (g *Guard) resourceOf(ctx context.Context, target contract.Target) (schema.GroupVersionResource, error) {
	resourceIn := func(group string) (schema.GroupVersionResource, error) {
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Kind: target.Kind})
		return plural, nil
	}

	switch target.Kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet":
		return resourceIn("apps")
	case "Job", "CronJob":
		return resourceIn("batch")
	case "Pod", "ReplicationController":
		return resourceIn("")
	}

	list, err := g.backend.Worklist(ctx)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}

	for _, row := range list.Rows {
		if row.Namespace == target.Namespace && row.Kind == target.Kind && row.Workload == target.Name {
			return resourceIn(schema.FromAPIVersionAndKind(row.APIVersion, row.Kind).Group)
		}
	}

	// The same answer as for a workload that the person may not read.
	return schema.GroupVersionResource{}, forbidden(Right{Verb: "list", Resource: strings.ToLower(target.Kind), Namespace: target.Namespace})
}

// Workload implements Backend.
func (g *Guard) Workload(ctx context.Context, target contract.Target) (contract.WorkloadDetail, error) {
	ctx, err := g.mayReadWorkload(ctx, target)
	if err != nil {
		return contract.WorkloadDetail{}, err
	}

	out, err := g.backend.Workload(ctx, target)
	if err != nil || !out.CanAdopt {
		return out, err
	}

	patch := listRecommendations(target.Namespace)
	patch.Verb = "patch"
	out.CanAdopt, err = g.reviews.Allowed(ctx, patch)

	return out, err
}

// Series implements Backend.
func (g *Guard) Series(ctx context.Context, target contract.Target, timeRange SeriesRange) (contract.WorkloadSeries, error) {
	ctx, err := g.mayReadWorkload(ctx, target)
	if err != nil {
		return contract.WorkloadSeries{}, err
	}

	return g.backend.Series(ctx, target, timeRange)
}

// WhatIf implements Backend.
func (g *Guard) WhatIf(ctx context.Context, target contract.Target, container string, settings contract.WhatIfSettings) (contract.WhatIf, error) {
	ctx, err := g.mayReadWorkload(ctx, target)
	if err != nil {
		return contract.WhatIf{}, err
	}

	return g.backend.WhatIf(ctx, target, container, settings)
}

// Autoscaling implements Backend.
func (g *Guard) Autoscaling(ctx context.Context) (contract.Autoscaling, error) {
	out, err := g.backend.Autoscaling(ctx)
	if err != nil {
		return out, err
	}

	group := autoscalingv1alpha1.GroupVersion.Group
	horizontal := Right{Verb: "list", Group: group, Resource: "effectivehorizontalpodautoscalers"}
	vertical := Right{Verb: "list", Group: group, Resource: "effectiveverticalpodautoscalers"}

	if out.Horizontal, err = visible(ctx, g.reviews, horizontal, out.Horizontal, func(a contract.HorizontalAutoscaler) string { return a.Namespace }); err != nil {
		return contract.Autoscaling{}, err
	}

	out.Vertical, err = visible(ctx, g.reviews, vertical, out.Vertical, func(a contract.VerticalAutoscaler) string { return a.Namespace })
	return out, err
}

// Forecast implements Backend. The objects are read with the token of the person; the history is that of the pods of the target.
func (g *Guard) Forecast(ctx context.Context, namespace, name string) (contract.Forecast, error) {
	if err := g.reviews.require(ctx,
		Right{
			Verb:      "list",
			Group:     autoscalingv1alpha1.GroupVersion.Group,
			Resource:  "effectivehorizontalpodautoscalers",
			Namespace: namespace,
		},
		Right{
			Verb:      "list",
			Group:     predictionv1alpha1.GroupVersion.Group,
			Resource:  "timeseriespredictions",
			Namespace: namespace,
		},
		Right{Verb: "list", Resource: "pods", Namespace: namespace},
	); err != nil {
		return contract.Forecast{}, err
	}

	ctx, err := g.withClusterRight(ctx)
	if err != nil {
		return contract.Forecast{}, err
	}

	return g.backend.Forecast(ctx, namespace, name)
}

// visible returns the objects in namespaces in which the person has a right.
func visible[T any](ctx context.Context, r *Reviews, right Right, objects []T, namespace func(T) string) ([]T, error) {
	in, all, err := r.allowedIn(ctx, right, namespacesOf(objects, namespace))
	if err != nil {
		return nil, err
	}

	if all {
		return objects, nil
	}

	return slices.DeleteFunc(slices.Clone(objects), func(object T) bool { return !in[namespace(object)] }), nil
}

// Nodes implements Backend.
func (g *Guard) Nodes(ctx context.Context) (contract.NodeList, error) {
	if err := g.reviews.require(ctx, clusterRights()...); err != nil {
		return contract.NodeList{}, err
	}

	return g.backend.Nodes(ctx)
}

// Placement implements Backend. The explanation names nodes and loads of the whole cluster; the backend asks the scheduler with the token
// of the person.
func (g *Guard) Placement(ctx context.Context, namespace, pod string) (contract.Placement, error) {
	if err := g.reviews.require(ctx, clusterRights()...); err != nil {
		return contract.Placement{}, err
	}

	return g.backend.Placement(ctx, namespace, pod)
}

// Cost implements Backend.
func (g *Guard) Cost(ctx context.Context, query CostQuery) (contract.Cost, error) {
	if err := g.reviews.require(ctx, clusterRights()...); err != nil {
		return contract.Cost{}, err
	}

	return g.backend.Cost(ctx, query)
}

// Rules implements Backend.
func (g *Guard) Rules(ctx context.Context) (contract.RuleList, error) {
	if err := g.reviews.require(ctx, Right{Verb: "list", Group: analysisv1alpha1.GroupVersion.Group, Resource: "recommendationrules"}); err != nil {
		return contract.RuleList{}, err
	}

	return g.backend.Rules(ctx)
}

// CreateRule implements Backend. The API server decides about the write and about each list of a dry run, which carry the token of the person.
func (g *Guard) CreateRule(ctx context.Context, request contract.RuleRequest) (contract.RuleResult, error) {
	return g.backend.CreateRule(ctx, request)
}

// Objects implements Backend. Requests of the client carry the token of the person.
func (g *Guard) Objects() (client.Client, error) { return g.backend.Objects() }

// Health implements Backend. The backend reads with the token of the person.
func (g *Guard) Health(ctx context.Context) (contract.Health, error) { return g.backend.Health(ctx) }

// Export implements Backend.
func (g *Guard) Export(ctx context.Context, format string, items []contract.Item) (content []byte, mediaType string, err error) {
	for _, namespace := range namespacesOf(items, func(i contract.Item) string { return i.Namespace }) {
		if err := g.reviews.require(ctx, listRecommendations(namespace)); err != nil {
			return nil, "", err
		}
	}

	return g.backend.Export(ctx, format, items)
}

// Act implements Backend. The API server decides about each write, which carries the token of the person.
func (g *Guard) Act(ctx context.Context, action string, dryRun bool, items []contract.Item) ([]contract.ItemResult, error) {
	return g.backend.Act(ctx, action, dryRun, items)
}
