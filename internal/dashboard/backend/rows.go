// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// worklistView lists the Recommendations of the cluster, or computes recommendations from the history where there are none.
type worklistView struct {
	*viewAccess
	objects *dashboard.Shared[contract.Worklist]
	report  *dashboard.Shared[sizereport.Report]

	mu sync.Mutex
	// computed is the worklist of computedFrom.
	computedFrom *sizereport.Report
	computed     *contract.Worklist
}

func newWorklistView(a *viewAccess, history *clusterHistory) *worklistView {
	v := &worklistView{viewAccess: a}
	v.objects = shared(a, v.readObjects, rowsTTL)
	v.report = &dashboard.Shared[sizereport.Report]{
		Read:     func(ctx context.Context) (*sizereport.Report, error) { return history.compute(ctx, contract.Target{}) },
		TTL:      reportTTL,
		Timeout:  reportLimit,
		Patience: firstWait,
		Clock:    a.Clock,
	}

	return v
}

// readObjects lists the Recommendations page by page and keeps only their rows. A cluster without the kind has none.
func (v *worklistView) readObjects(ctx context.Context) (*contract.Worklist, error) {
	if v.fromFiles() {
		return &contract.Worklist{}, nil
	}

	c, err := v.Access.ObjectClient()
	if errors.Is(err, clusteraccess.ErrNoKubeconfig) && v.Prometheus.Address != "" {
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
			// A fresh list for each page frees the objects of the one before.
			token := list.Continue
			list = analysisv1alpha1.RecommendationList{}

			err := c.List(ctx, &list, client.InNamespace(namespace), client.Limit(clusteraccess.PageSize), client.Continue(token))
			if meta.IsNoMatchError(err) {
				break
			}
			if err != nil {
				return nil, unavailable(err)
			}

			for i := range list.Items {
				rows = append(rows, dashboard.RowOf(v.ClusterName, &list.Items[i]))
			}
		}
	}

	out := dashboard.NewWorklist(slices.Clip(rows), v.Prices.Currency, contract.Origin{
		AsOf: v.Clock.Now().Unix(), Source: "Recommendations, " + v.Access.ServerName(),
	})
	out.Hidden = scope[0] != ""

	return out, nil
}

// Worklist implements dashboard.Backend.
func (v *worklistView) Worklist(ctx context.Context) (*contract.Worklist, error) {
	rows, _, stale, err := v.objects.Get(ctx)
	if err != nil {
		return nil, err
	}

	if len(rows.Rows) > 0 || v.Access.Fixed != nil {
		return withStale(rows, stale), nil
	}

	found, _, stale, err := v.report.Get(ctx)
	if err != nil {
		return nil, err
	}

	v.mu.Lock()
	defer v.mu.Unlock()

	if v.computedFrom != found {
		v.computedFrom = found
		v.computed = v.rowsOf(found)
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

// rowsOf returns the worklist of a report.
func (v *worklistView) rowsOf(r *sizereport.Report) *contract.Worklist {
	rows := make([]contract.Row, 0, len(r.Items))
	for i := range r.Items {
		rows = append(rows, rowOf(v.ClusterName, r, &r.Items[i]))
	}

	return dashboard.NewWorklist(rows, currencyOf(r, v.Prices), originOf(r))
}

// currencyOf returns the currency of a report; that of the price book if the report has no prices.
func currencyOf(r *sizereport.Report, prices *cost.PriceBook) string {
	if r.Prices == nil {
		return prices.Currency
	}

	return r.Prices.Book.Currency
}

// originOf names the sources of a report.
func originOf(r *sizereport.Report) contract.Origin {
	out := contract.Origin{AsOf: r.Now.Unix(), WindowSeconds: int64(r.Window.Seconds()), Source: "computed by this dashboard from " + r.Sources.History}
	out.Notes = append(out.Notes, r.Sources.Lines()...)
	if r.Prices != nil {
		out.Notes = append(out.Notes, r.Prices.Description())
	}

	return out
}

func rowOf(cluster string, r *sizereport.Report, it *sizereport.Item) contract.Row {
	ref := it.Workload.Ref
	row := contract.Row{
		Cluster:    cluster,
		Namespace:  ref.Namespace,
		Type:       string(analysisv1alpha1.AnalysisTypeResource),
		Kind:       ref.Kind,
		Workload:   ref.Name,
		APIVersion: ref.APIVersion,
		Labels:     it.Workload.Labels,
		Action:     string(it.Plan.Action),
		Message:    it.Plan.Description,
		Created:    dashboard.Unix(it.Workload.Created),
		Updated:    r.Now.Unix(),
	}

	row.State = map[recommend.State]contract.State{
		recommend.Ready: contract.StateReady, recommend.Clear: contract.StateClear, recommend.Learning: contract.StateLearning,
		recommend.NoData: contract.StateNoData, recommend.Refused: contract.StateRefused,
	}[it.Plan.State]
	// A recommendation that changes nothing needs no attention.
	if row.State == contract.StateReady && it.Plan.Action == recommend.NoAction {
		row.State = contract.StateClear
	}

	if it.Plan.State == recommend.Ready {
		row.Now, row.Recommended = podSizes(r, it)
		row.Change = sizeChange(row.Now, row.Recommended)
	}

	if it.Saving.Counted > 0 {
		monthly := it.Saving.Hourly.Total().PerMonth()
		cpu := int64(it.Saving.CPU)
		memory := int64(it.Saving.Memory)
		row.SavingPerMonth = &monthly
		row.SavedCPUMilli = &cpu
		row.SavedMemoryBytes = &memory
	}

	dashboard.Rate(&row)
	return row
}

// podSizes returns the requests of one pod, over the containers that have both numbers.
func podSizes(r *sizereport.Report, it *sizereport.Item) (now, after *contract.Size) {
	now = &contract.Size{}
	after = &contract.Size{}
	countable := func(kind metrics.UsageKind, sizing rightsize.Sizing, request, recommended int64) bool {
		return slices.Contains(r.Resources, kind) && sizing.Status == rightsize.Ready && recommended > 0 && (request > 0 || r.FromFiles())
	}

	for _, c := range it.Plan.Containers {
		cpuNow := int64(ptr.Deref(c.Current.CPURequest, 0))
		cpuAfter := int64(ptr.Deref(c.Target.CPURequest, 0))
		if countable(metrics.CPU, c.CPU, cpuNow, cpuAfter) {
			now.CPUMilli = addSize(now.CPUMilli, cpuNow)
			after.CPUMilli = addSize(after.CPUMilli, cpuAfter)
		}

		memoryNow := int64(ptr.Deref(c.Current.MemoryRequest, 0))
		memoryAfter := int64(ptr.Deref(c.Target.MemoryRequest, 0))
		if countable(metrics.Memory, c.Memory, memoryNow, memoryAfter) {
			now.MemoryBytes = addSize(now.MemoryBytes, memoryNow)
			after.MemoryBytes = addSize(after.MemoryBytes, memoryAfter)
		}
	}

	if r.FromFiles() {
		now = nil // Files have no requests.
	}

	return now, after
}

// addSize returns the sum of an amount and of one that may be unknown.
func addSize(sum *int64, amount int64) *int64 {
	total := ptr.Deref(sum, 0) + amount
	return &total
}

// sizeChange writes a change in short, as status.change of a Recommendation does.
func sizeChange(now, after *contract.Size) string {
	if now == nil || after == nil {
		return ""
	}

	var parts []string
	if now.CPUMilli != nil && *now.CPUMilli != *after.CPUMilli {
		parts = append(parts, "cpu "+units.FormatCPU(units.MilliCPU(*now.CPUMilli))+" → "+units.FormatCPU(units.MilliCPU(*after.CPUMilli)))
	}
	if now.MemoryBytes != nil && *now.MemoryBytes != *after.MemoryBytes {
		parts = append(parts, "memory "+units.FormatMemory(units.Bytes(*now.MemoryBytes))+" → "+units.FormatMemory(units.Bytes(*after.MemoryBytes)))
	}

	return strings.Join(parts, ", ")
}
