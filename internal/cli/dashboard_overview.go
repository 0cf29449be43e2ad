// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/pkg/cost"
)

// Overview implements dashboard.Backend.
func (v *clusterView) Overview(ctx context.Context, list *contract.Worklist) (contract.Overview, error) {
	out := dashboard.Summarize(list)
	if v.fromFiles() {
		return out, nil
	}
	costs, _, _, err := v.costs.Get(ctx)
	if err == nil {
		setClusterCost(&out.Money, costs)
	} else {
		out.Notes = append(slices.Clone(out.Notes), "the cost of the cluster is unknown: "+err.Error())
	}
	return out, nil
}

// setClusterCost sets the costs of the cluster for a month.
func setClusterCost(money *contract.Money, costs *costReport) {
	month := func(of cost.Split) *float64 { m := of.Total().PerMonth(); return &m }
	money.ClusterPerMonth, money.RequestedPerMonth = month(costs.Allocation.Cluster), month(costs.Used.Cost.Request)
	if costs.withUsage {
		money.UsedPerMonth, money.IdlePerMonth = month(costs.Used.Cost.Usage), month(costs.Idle.Usage)
	}
}

