// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"maps"
	"slices"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
)

const (
	maxTop       = 10
	maxAttention = 50
)

// Summarize returns the overview of a worklist: sums, coverage and what needs attention. Amounts of the whole cluster are added by the
// backend. limit is the most that a namespace, and all of them, can save in a month: the cost of the cluster, or infinite. Who may write the status of
// Recommendations could otherwise make the sums absurd.
func Summarize(list *contract.Worklist, limit float64) contract.Overview {
	out := contract.Overview{
		Origin:     list.Origin,
		Currency:   list.Currency,
		Partial:    list.Hidden,
		Trend:      []contract.TrendPoint{},
		Attention:  []contract.Attention{},
		Top:        []contract.Row{},
		Namespaces: []contract.NamespaceSum{},
	}

	spaces := map[[2]string]*namespaceSums{}
	for _, row := range list.Rows {
		// The other types would count a workload twice.
		if row.Type == string(analysisv1alpha1.AnalysisTypeResource) {
			count(&out.Coverage, row)
			space := spaces[[2]string{row.Cluster, row.Namespace}]
			if space == nil {
				space = &namespaceSums{NamespaceSum: contract.NamespaceSum{Cluster: row.Cluster, Namespace: row.Namespace}}
				spaces[[2]string{row.Cluster, row.Namespace}] = space
			}

			space.Workloads++
			if row.SavingPerMonth != nil {
				space.SavingPerMonth += *row.SavingPerMonth
			}

			addSaving(&space.money, row)
		}

		if row.AdoptionType == string(analysisv1alpha1.AdoptionTypeAuto) {
			addAdoption(&out.Adoption, row)
		}
		if row.SavingPerMonth != nil && *row.SavingPerMonth > 0 && row.State == contract.StateReady && len(out.Top) < maxTop {
			out.Top = append(out.Top, row)
		}
		if a, ok := attentionOf(row); ok {
			out.Attention = append(out.Attention, a)
		}
	}

	for _, space := range spaces {
		space.bound(limit)
	}

	for _, space := range slices.SortedFunc(maps.Values(spaces), func(a, b *namespaceSums) int {
		return cmp.Or(cmp.Compare(b.SavingPerMonth, a.SavingPerMonth), cmp.Compare(a.Namespace, b.Namespace))
	}) {
		out.Namespaces = append(out.Namespaces, space.NamespaceSum)
		out.Money.RecoverablePerMonth += space.money.RecoverablePerMonth
		out.Money.NeededPerMonth += space.money.NeededPerMonth
		out.Money.SavedCPUMilli += space.money.SavedCPUMilli
		out.Money.SavedMemoryBytes += space.money.SavedMemoryBytes
	}

	boundMoney(&out.Money, limit)

	urgency := map[string]int{"error": 0, "warning": 1, "info": 2}
	slices.SortStableFunc(out.Attention, func(a, b contract.Attention) int { return cmp.Compare(urgency[a.Severity], urgency[b.Severity]) })
	out.Attention = out.Attention[:min(len(out.Attention), maxAttention)]

	return out
}

// namespaceSums are the sums of the rows of a namespace.
type namespaceSums struct {
	contract.NamespaceSum

	money contract.Money
}

// bound reduces sums that exceed a limit to it.
func (n *namespaceSums) bound(limit float64) {
	n.SavingPerMonth = max(-limit, min(n.SavingPerMonth, limit))
	boundMoney(&n.money, limit)
}

// boundMoney reduces monthly amounts that exceed a limit to it, and the resources with them.
func boundMoney(m *contract.Money, limit float64) {
	if m.RecoverablePerMonth > limit {
		share := limit / m.RecoverablePerMonth
		m.RecoverablePerMonth = limit
		m.SavedCPUMilli = int64(float64(m.SavedCPUMilli) * share)
		m.SavedMemoryBytes = int64(float64(m.SavedMemoryBytes) * share)
	}

	m.NeededPerMonth = min(m.NeededPerMonth, limit)
}

func count(c *contract.Coverage, row contract.Row) {
	c.Workloads++
	if row.AdoptionType == string(analysisv1alpha1.AdoptionTypeAuto) {
		c.Adopted++
	}

	switch row.State {
	case contract.StateLearning:
		c.Learning++
	case contract.StateNoData:
		c.NoData++
	case contract.StateRefused:
		c.Refused++
	case contract.StateFailed:
		c.Failed++
	default:
		c.WithNumber++
	}
}

// addSaving adds the saving of a row that is not adopted.
func addSaving(m *contract.Money, row contract.Row) {
	if row.SavingPerMonth == nil || row.State == contract.StateAdopted {
		return
	}

	if *row.SavingPerMonth < 0 {
		m.NeededPerMonth -= *row.SavingPerMonth
		return
	}

	m.RecoverablePerMonth += *row.SavingPerMonth
	if row.SavedCPUMilli != nil && row.SavedMemoryBytes != nil {
		m.SavedCPUMilli += *row.SavedCPUMilli
		m.SavedMemoryBytes += *row.SavedMemoryBytes
	}
}

func addAdoption(a *contract.AdoptionSum, row contract.Row) {
	a.Workloads++
	switch row.State {
	case contract.StateAdopting:
		a.InProgress++
	case contract.StateRolledBack:
		a.RolledBack++
	}
}

// attentionOf returns what is to do about a row; ok is false for nothing.
func attentionOf(row contract.Row) (out contract.Attention, ok bool) {
	out = contract.Attention{
		Message: row.Message,
		Page:    "workload",
		At:      row.Updated,
		Target: &contract.Target{
			Cluster:   row.Cluster,
			Namespace: row.Namespace,
			Kind:      row.Kind,
			Name:      row.Workload,
		},
	}

	// The first state that applies names the next step.
	switch {
	case row.State == contract.StateRolledBack:
		out.Severity = "error"
		out.Reason = "RolledBack"
		out.Next = "read why, before it is lowered again"
	case row.State == contract.StateStopped:
		out.Severity = "error"
		out.Reason = "Stopped"
		out.Next = "another client changes the requests; delete the annotation analysis.crane.io/adoption to start again"

	case row.State == contract.StateFailed:
		out.Severity = "warning"
		out.Reason = "Failed"
		out.Next = "the number is that of an earlier evaluation"
	case row.SavingPerMonth != nil && *row.SavingPerMonth < 0 && row.State == contract.StateReady:
		out.Severity = "warning"
		out.Reason = "UnderRequested"
		out.Message = row.Change
		out.Next = "adopt the larger request"

	default:
		return out, false
	}

	return out, true
}
