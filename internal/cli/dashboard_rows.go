// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// rowsOf returns the worklist of a report.
func (v *clusterView) rowsOf(r *report) *contract.Worklist {
	rows := make([]contract.Row, 0, len(r.items))
	for i := range r.items {
		rows = append(rows, v.rowOf(r, &r.items[i]))
	}
	return dashboard.NewWorklist(rows, v.currency(r), v.originOf(r))
}

func (v *clusterView) currency(r *report) string {
	if r.prices == nil {
		return v.prices.Currency
	}
	return r.prices.book.Currency
}

// originOf names the sources of a report.
func (v *clusterView) originOf(r *report) contract.Origin {
	out := contract.Origin{AsOf: r.now.Unix(), WindowSeconds: int64(r.window.Seconds()), Source: "computed by this dashboard from " + r.sources.history}
	out.Notes = append(out.Notes, r.sources.lines()...)
	if r.prices != nil {
		out.Notes = append(out.Notes, r.prices.description())
	}
	return out
}

func (v *clusterView) rowOf(r *report, it *item) contract.Row {
	ref := it.workload.Ref
	row := contract.Row{
		Cluster: v.name, Namespace: ref.Namespace, Type: string(analysisv1alpha1.AnalysisTypeResource), Kind: ref.Kind, Workload: ref.Name,
		APIVersion: ref.APIVersion, Labels: it.workload.Labels, Action: string(it.plan.Action), Message: it.plan.Description,
		Created: dashboard.Unix(it.workload.Created), Updated: r.now.Unix(),
	}
	row.State = map[recommend.State]contract.State{
		recommend.Ready: contract.StateReady, recommend.Clear: contract.StateClear, recommend.Learning: contract.StateLearning,
		recommend.NoData: contract.StateNoData, recommend.Refused: contract.StateRefused,
	}[it.plan.State]
	if row.State == contract.StateReady && it.plan.Action == recommend.NoAction {
		row.State = contract.StateClear
	}
	if it.plan.State == recommend.Ready {
		row.Now, row.Recommended = r.podSizes(it)
		row.Change = sizeChange(row.Now, row.Recommended)
	}
	if it.saving.Counted > 0 {
		monthly := it.saving.Hourly.Total().PerMonth()
		cpu, memory := int64(it.saving.CPU), int64(it.saving.Memory)
		row.SavingPerMonth, row.SavedCPUMilli, row.SavedMemoryBytes = &monthly, &cpu, &memory
	}
	dashboard.Rate(&row)
	return row
}

// podSizes returns the requests of one pod, over the containers that have both numbers.
func (r *report) podSizes(it *item) (now, after *contract.Size) {
	now, after = &contract.Size{}, &contract.Size{}
	for _, c := range it.plan.Containers {
		for _, s := range r.resourceSizes(c) {
			if s.status != rightsize.Ready || s.target <= 0 || s.current <= 0 && !r.fromFiles() {
				continue
			}
			if s.resource == metrics.CPU {
				now.CPUMilli, after.CPUMilli = addSize(now.CPUMilli, s.current*1000), addSize(after.CPUMilli, s.target*1000)
			} else {
				now.MemoryBytes, after.MemoryBytes = addSize(now.MemoryBytes, s.current), addSize(after.MemoryBytes, s.target)
			}
		}
	}
	if r.fromFiles() {
		now = nil // Files have no requests.
	}
	return now, after
}

func addSize(sum *int64, v float64) *int64 {
	n := int64(v + 0.5)
	if sum != nil {
		n += *sum
	}
	return &n
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
