// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package sizereport

import (
	"context"
	"fmt"
	"maps"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/clusterstate"
	"crane.io/crane/pkg/cost"
)

// PriceInfo describes the prices of a report.
type PriceInfo struct {
	Book *cost.PriceBook
	// Note names data that is missing in the cluster, empty if the prices are complete.
	Note string
}

// Price adds the saving of its plan to each workload.
// groupOf maps nodes to their node groups.
func (r *Report) Price(p *PriceInfo, tariff *cost.Tariff, placed workload.Placement, groupOf map[string]string) {
	r.Prices = p
	for i := range r.Items {
		it := &r.Items[i]
		w := it.Workload

		pods := placed.PodsByNode(w.Ref)
		unit := tariff.At(pods)
		it.Saving = it.Plan.SavingOf(unit, w.Replicas, w.RunsToCompletion())
		for c := range it.Plan.Containers {
			it.Savings = append(it.Savings, it.Plan.ContainerSaving(c, unit, w.Replicas, w.RunsToCompletion()))
			var groups []cost.Saving
			for g, group := range it.Plan.Containers[c].NodeGroups {
				podsOfGroup := maps.Clone(pods)
				maps.DeleteFunc(podsOfGroup, func(node string, _ int) bool { return groupOf[node] != group.Group })
				groups = append(groups, it.Plan.NodeGroupSaving(c, g, tariff.At(podsOfGroup)))
			}

			it.GroupSavings = append(it.GroupSavings, groups)
		}
	}
}

// priceReport prices the nodes. If the nodes cannot be listed, it uses the default prices and adds a note, because
// the recommended requests do not depend on prices.
func (c *Collector) priceReport(ctx context.Context, out *Report, state *clusterstate.State, groupOf map[string]string) error {
	cluster, err := state.Cluster(ctx, c.Prices.LabelKeys())
	found := &PriceInfo{Book: c.Prices}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		found.Note = "the nodes cannot be listed"
		state.Note(fmt.Sprintf("Warning: %v; savings use the default prices of the price book", err))
	case len(cluster.Nodes) == 0:
		found.Note = "there are no nodes"
	}

	tariff, err := cost.NewTariff(c.Prices, cluster.Nodes)
	if err != nil {
		return fmt.Errorf("pricing the nodes: %w", err)
	}

	out.Price(found, tariff, cluster.Placement(), groupOf)
	return nil
}

// Description returns the source of the prices as a sentence.
func (p *PriceInfo) Description() string {
	text := fmt.Sprintf("Prices in %s of %s, a month of %d hours", p.Book.Currency, p.Book.Date, cost.HoursPerMonth)
	if p.Note != "" {
		text += "; " + p.Note + ", so the default prices of the price book apply"
	}

	return text + ". Negative savings are costs. Savings are realized when nodes are removed."
}
