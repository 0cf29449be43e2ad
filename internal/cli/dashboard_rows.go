// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

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
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// worklistView lists the Recommendations of the cluster, or computes recommendations from the history where there are none.
type worklistView struct {
	*viewAccess
	objects *dashboard.Shared[contract.Worklist]
	report  *dashboard.Shared[sizeReport]

	mu sync.Mutex
	// computed is the worklist of computedFrom.
	computedFrom *sizeReport
	computed     *contract.Worklist
}

func newWorklistView(a *viewAccess, history *clusterHistory) *worklistView {
	v := &worklistView{viewAccess: a}
	v.objects = shared(a, v.readObjects, rowsTTL)
	v.report = &dashboard.Shared[sizeReport]{
		Read:     func(ctx context.Context) (*sizeReport, error) { return history.compute(ctx, contract.Target{}) },
		TTL:      reportTTL,
		Timeout:  reportLimit,
		Patience: firstWait,
		Clock:    a.clock,
	}

	return v
}

// readObjects lists the Recommendations page by page and keeps only their rows. A cluster without the kind has none.
func (v *worklistView) readObjects(ctx context.Context) (*contract.Worklist, error) {
	if v.fromFiles() {
		return &contract.Worklist{}, nil
	}

	c, err := v.access.objectClient()
	if errors.Is(err, errNoKubeconfig) && v.prometheus.address != "" {
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
func (v *worklistView) Worklist(ctx context.Context) (*contract.Worklist, error) {
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

// rowsOf returns the worklist of a report.
func (v *worklistView) rowsOf(r *sizeReport) *contract.Worklist {
	rows := make([]contract.Row, 0, len(r.items))
	for i := range r.items {
		rows = append(rows, rowOf(v.name, r, &r.items[i]))
	}

	return dashboard.NewWorklist(rows, currencyOf(r, v.prices), originOf(r))
}

// currencyOf returns the currency of a report; that of the price book if the report has no prices.
func currencyOf(r *sizeReport, prices *cost.PriceBook) string {
	if r.prices == nil {
		return prices.Currency
	}

	return r.prices.book.Currency
}

// originOf names the sources of a report.
func originOf(r *sizeReport) contract.Origin {
	out := contract.Origin{AsOf: r.now.Unix(), WindowSeconds: int64(r.window.Seconds()), Source: "computed by this dashboard from " + r.sources.history}
	out.Notes = append(out.Notes, r.sources.lines()...)
	if r.prices != nil {
		out.Notes = append(out.Notes, r.prices.description())
	}

	return out
}

func rowOf(cluster string, r *sizeReport, it *item) contract.Row {
	ref := it.workload.Ref
	row := contract.Row{
		Cluster:    cluster,
		Namespace:  ref.Namespace,
		Type:       string(analysisv1alpha1.AnalysisTypeResource),
		Kind:       ref.Kind,
		Workload:   ref.Name,
		APIVersion: ref.APIVersion,
		Labels:     it.workload.Labels,
		Action:     string(it.plan.Action),
		Message:    it.plan.Description,
		Created:    dashboard.Unix(it.workload.Created),
		Updated:    r.now.Unix(),
	}

	row.State = map[recommend.State]contract.State{
		recommend.Ready: contract.StateReady, recommend.Clear: contract.StateClear, recommend.Learning: contract.StateLearning,
		recommend.NoData: contract.StateNoData, recommend.Refused: contract.StateRefused,
	}[it.plan.State]
	if row.State == contract.StateReady && it.plan.Action == recommend.NoAction {
		row.State = contract.StateClear
	}

	if it.plan.State == recommend.Ready {
		row.Now, row.Recommended = podSizes(r, it)
		row.Change = sizeChange(row.Now, row.Recommended)
	}

	if it.saving.Counted > 0 {
		monthly := it.saving.Hourly.Total().PerMonth()
		cpu := int64(it.saving.CPU)
		memory := int64(it.saving.Memory)
		row.SavingPerMonth = &monthly
		row.SavedCPUMilli = &cpu
		row.SavedMemoryBytes = &memory
	}

	dashboard.Rate(&row)
	return row
}

// podSizes returns the requests of one pod, over the containers that have both numbers.
func podSizes(r *sizeReport, it *item) (now, after *contract.Size) {
	now = &contract.Size{}
	after = &contract.Size{}
	countable := func(kind metrics.UsageKind, sizing rightsize.Sizing, request, recommended int64) bool {
		return slices.Contains(r.resources, kind) && sizing.Status == rightsize.Ready && recommended > 0 && (request > 0 || r.fromFiles())
	}

	for _, c := range it.plan.Containers {
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

	if r.fromFiles() {
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
		parts = append(parts, "cpu "+rightsize.FormatCPU(series.MilliCPU(*now.CPUMilli))+" → "+rightsize.FormatCPU(series.MilliCPU(*after.CPUMilli)))
	}
	if now.MemoryBytes != nil && *now.MemoryBytes != *after.MemoryBytes {
		parts = append(parts, "memory "+rightsize.FormatMemory(series.Bytes(*now.MemoryBytes))+" → "+rightsize.FormatMemory(series.Bytes(*after.MemoryBytes)))
	}

	return strings.Join(parts, ", ")
}
