// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/recommendation/allocation"
	"crane.io/crane/pkg/cost"
)

// The groupings of the page of costs.
const (
	costByWorkload  = "workload"
	costByNamespace = "namespace"
	costByNode      = "node"
	costByPool      = "pool"
	costByLabel     = "label"
)

// costView allocates the costs of the cluster.
type costView struct {
	*viewAccess
	history *clusterHistory
	// costs are by the window of the mean usage; labels are those of the workloads.
	costs  *dashboard.Cache[time.Duration, allocation.Report]
	labels *dashboard.Shared[workloadLabels]
}

func newCostView(a *viewAccess, history *clusterHistory) *costView {
	v := &costView{viewAccess: a, history: history}
	v.costs = dashboard.NewCache(dashboard.Limits{
		Size:     maxCosts,
		TTL:      costTTL,
		Timeout:  costLimit,
		Patience: firstWait,
	}, a.Clock, v.readCosts)

	v.labels = shared(a, v.readLabels, costTTL)
	return v
}

// readCosts allocates the cost of the nodes, as crane cost does.
func (v *costView) readCosts(ctx context.Context, window time.Duration) (*allocation.Report, error) {
	costs := allocation.Allocator{
		Prometheus: v.history.server(),
		Kubernetes: v.Personal,
		Window:     window,
		Prices:     v.Prices,
		Output:     io.Discard,
	}

	found, err := costs.Allocate(ctx)
	if err != nil {
		return nil, historyFailure(err)
	}

	// The address of Prometheus is for administrators.
	if v.Personal.Personal() {
		found.Sources.History = "Prometheus"
	}

	return found, nil
}

// Cost implements dashboard.Backend.
func (v *costView) Cost(ctx context.Context, query dashboard.CostQuery) (contract.Cost, error) {
	if v.fromFiles() {
		return contract.Cost{}, dashboard.NotServed("files have no cost", "")
	}

	if !slices.Contains([]string{costByNamespace, costByWorkload, costByNode, costByPool, costByLabel}, query.By) {
		return contract.Cost{}, dashboard.NewResponseError(http.StatusBadRequest, contract.ReasonInvalid, fmt.Sprintf("by %q: must be namespace, workload, node, pool or label", query.By), "")
	}

	found, at, stale, err := v.costs.Get(ctx, query.Window)
	if err != nil {
		return contract.Cost{}, err
	}

	// A missing usage is left out of the answer: 0 would be a measurement.
	share := func(s cost.Shares) contract.CostShare {
		out := contract.CostShare{RequestPerMonth: s.Request.Total().PerMonth(), MaxPerMonth: s.Max.Total().PerMonth()}
		if found.WithUsage {
			used := s.Usage.Total().PerMonth()
			out.UsagePerMonth = &used
		}

		return out
	}

	clusterTotal := found.Allocation.Cluster.Total().PerMonth()
	idle := share(found.Idle)
	out := contract.Cost{
		Origin: contract.Origin{
			AsOf:          at.Unix(),
			WindowSeconds: int64(query.Window.Seconds()),
			Source:        costSource(found),
			Stale:         stale,
		},
		Currency:        v.Prices.Currency,
		By:              query.By,
		Rows:            []contract.CostRow{},
		ClusterPerMonth: &clusterTotal,
		Idle:            &idle,
		WithUsage:       found.WithUsage,
	}

	switch query.By {
	case costByNamespace:
		for _, n := range found.Namespaces {
			out.Rows = append(out.Rows, contract.CostRow{Name: n.Namespace, Pods: n.Pods, CostShare: share(n.Cost)})
		}

	case costByWorkload:
		for _, w := range found.Workloads {
			out.Rows = append(out.Rows, contract.CostRow{Name: w.String(), Pods: w.Pods, CostShare: share(w.Cost)})
		}

	case costByLabel:
		all, _, staleLabels, err := v.labels.Get(ctx)
		if err != nil {
			return contract.Cost{}, err
		}

		out.LabelKeys = all.keys
		out.Stale = cmp.Or(out.Stale, staleLabels)
		for _, g := range all.group(found.Workloads, query.Label) {
			out.Rows = append(out.Rows, contract.CostRow{Name: g.value, Pods: g.pods, CostShare: share(g.cost)})
		}

	default:
		out.Rows = nodeCosts(found, query.By == costByPool)
	}

	return out, nil
}

// costSource names the sources of nodes and usage.
func costSource(r *allocation.Report) string { return r.Sources.Nodes + ", " + r.Sources.History }

// nodeCosts returns the price of each node, or of each group of nodes: by each measure, the part that pods pay.
func nodeCosts(r *allocation.Report, byPool bool) []contract.CostRow {
	rows := []contract.CostRow{}
	index := map[string]int{}
	for _, n := range r.Nodes {
		name := n.Node
		if byPool {
			name = n.Group
		}

		i, ok := index[name]
		if !ok {
			i = len(rows)
			index[name] = i
			rows = append(rows, contract.CostRow{Name: name})
		}

		// A node costs its price; what its pods pay is the price without the idle part.
		row := &rows[i]
		row.Pods += n.Pods
		price := n.Cost.Total().PerMonth()

		row.RequestPerMonth += price - n.Idle.Request.Total().PerMonth()
		row.MaxPerMonth += price - n.Idle.Max.Total().PerMonth()
		if r.WithUsage {
			used := price - n.Idle.Usage.Total().PerMonth()
			if row.UsagePerMonth != nil {
				used += *row.UsagePerMonth
			}

			row.UsagePerMonth = &used
		}
	}

	return rows
}

// workloadLabels are the labels of workloads, and the keys of most of them.
type workloadLabels struct {
	byWorkload map[cost.Workload]map[string]string
	keys       []string
}

// maxLabelKeys is the number of keys that the page offers.
const maxLabelKeys = 30

func (v *costView) readLabels(ctx context.Context) (*workloadLabels, error) {
	all, err := v.Personal.ListWorkloads(ctx, nil, func(error) {})
	if errors.Is(err, clusteraccess.ErrNoKubeconfig) {
		return nil, dashboard.NotServed("labels are read from the Kubernetes API, and there is no kubeconfig", "group by namespace or workload")
	}
	if err != nil {
		return nil, unavailable(err)
	}

	out := &workloadLabels{byWorkload: map[cost.Workload]map[string]string{}}
	counts := map[string]int{}
	for _, w := range all {
		out.byWorkload[cost.Workload{Namespace: w.Namespace, Kind: w.Kind, Name: w.Name}] = w.Labels
		for key := range w.Labels {
			counts[key]++

			if counts[key] == 1 {
				out.keys = append(out.keys, key)
			}
		}
	}

	slices.SortFunc(out.keys, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	out.keys = out.keys[:min(len(out.keys), maxLabelKeys)]
	return out, nil
}

// labelGroup is the cost of the workloads with one value of a label; the value is empty for those without the label.
type labelGroup struct {
	value string
	pods  int
	cost  cost.Shares
}

func (l *workloadLabels) group(workloads []cost.WorkloadCost, key string) []labelGroup {
	var out []labelGroup
	index := map[string]int{}
	for _, w := range workloads {
		value := l.byWorkload[w.Workload][key]
		i, ok := index[value]
		if !ok {
			i = len(out)
			index[value] = i
			out = append(out, labelGroup{value: value})
		}

		out[i].pods += w.Pods
		out[i].cost = out[i].cost.Plus(w.Cost)
	}

	return out
}
