// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/cost"
)

// priceInfo describes the prices of a report.
type priceInfo struct {
	book *cost.PriceBook
	// note names data that is missing in the cluster, empty if the prices are complete.
	note string
}

// price adds the saving of its plan to each workload.
// groupOf maps nodes to their node groups.
func (r *sizeReport) price(p *priceInfo, tariff *cost.Tariff, placed workload.Placement, groupOf map[string]string) {
	r.prices = p
	for i := range r.items {
		it := &r.items[i]
		w := it.workload

		pods := placed.PodsByNode(w.Ref)
		unit := tariff.At(pods)
		it.saving = it.plan.SavingOf(unit, w.Replicas, runsToCompletion(w.Ref))
		for c := range it.plan.Containers {
			it.savings = append(it.savings, it.plan.ContainerSaving(c, unit, w.Replicas, runsToCompletion(w.Ref)))
			var groups []cost.Saving
			for g, group := range it.plan.Containers[c].NodeGroups {
				there := maps.Clone(pods)
				maps.DeleteFunc(there, func(node string, _ int) bool { return groupOf[node] != group.Group })
				groups = append(groups, it.plan.NodeGroupSaving(c, g, tariff.At(there)))
			}

			it.groupSavings = append(it.groupSavings, groups)
		}
	}
}

// runsToCompletion reports whether the pods of the workload run to completion.
func runsToCompletion(ref workload.Ref) bool { return ref.Kind == "Job" || ref.Kind == "CronJob" }

// priceReport prices the nodes. If the nodes cannot be listed, it uses the default prices and adds a note, because
// the recommended requests do not depend on prices.
func (c *collector) priceReport(ctx context.Context, out *sizeReport, state *clusterState, groupOf map[string]string) error {
	cluster, err := state.cluster(ctx, c.prices.LabelKeys())
	found := &priceInfo{book: c.prices}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		found.note = "the nodes cannot be listed"
		state.note(fmt.Sprintf("Warning: %v; savings use the default prices of the price book", err))
	case len(cluster.Nodes) == 0:
		found.note = "there are no nodes"
	}

	tariff, err := cost.NewTariff(c.prices, cluster.Nodes)
	if err != nil {
		return fmt.Errorf("failed to price the nodes: %w", err)
	}

	out.price(found, tariff, cluster.Placement(), groupOf)
	return nil
}

// description returns the source of the prices as a sentence.
func (p *priceInfo) description() string {
	text := fmt.Sprintf("Prices in %s of %s, a month of %d hours", p.book.Currency, p.book.Date, cost.HoursPerMonth)
	if p.note != "" {
		text += "; " + p.note + ", so the default prices of the price book apply"
	}

	return text + ". Negative savings are costs. Savings are realized when nodes are removed."
}
