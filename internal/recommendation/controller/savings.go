// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/cost"
	recommended "crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/units"
)

// Pricer returns the cost of the nodes of the cluster and the placement of pods.
type Pricer interface {
	Prices(ctx context.Context) (*cost.Tariff, workload.Placement, error)
}

// priceData is the result of a Pricer for one batch.
type priceData struct {
	tariff    *cost.Tariff
	placement workload.Placement
}

// prices reads the prices. Without them a batch continues: requests do not depend on prices, and the savings of the last
// run are kept.
func (d *runData) prices(ctx context.Context) {
	if d.pricer == nil || d.read.priced {
		return
	}

	d.read.priced = true
	tariff, placed, err := d.pricer.Prices(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("recommendations are written without savings: the nodes have no prices", "reason", err.Error())
		return
	}

	d.read.prices = &priceData{tariff: tariff, placement: placed}
}

// savingsOf returns the savings of a plan; nil without prices, and if nothing can be counted.
func (p *priceData) savingsOf(target workload.Workload, plan recommended.Plan) *analysisv1alpha1.Savings {
	if p == nil {
		return nil
	}

	return p.toSavings(plan.SavingOf(p.tariff.At(p.placement.PodsByNode(target.Ref)), target.Replicas, target.RunsToCompletion()))
}

// savingsOfScaleDown returns the savings of running no pods of a workload; nil as in savingsOf.
func (p *priceData) savingsOfScaleDown(target workload.Workload) *analysisv1alpha1.Savings {
	if p == nil {
		return nil
	}

	var noCPU units.MilliCPU
	var noMemory units.Bytes
	var all []cost.Resize
	for _, c := range target.Containers {
		if c.Role == workload.Init {
			continue
		}

		cpu, memory := c.Requests.CPU, c.Requests.Memory
		all = append(all, cost.Resize{
			Container: c.Name,
			CPUNow:    &cpu,
			CPUNew:    &noCPU,
			MemoryNow: &memory,
			MemoryNew: &noMemory,
		})
	}

	return p.toSavings(cost.SavingOf(p.tariff.At(p.placement.PodsByNode(target.Ref)), target.Replicas, all))
}

// toSavings converts a saving; nil if nothing was counted.
func (p *priceData) toSavings(s cost.Saving) *analysisv1alpha1.Savings {
	if s.Counted == 0 {
		return nil
	}

	return &analysisv1alpha1.Savings{
		CPU:        *resource.NewMilliQuantity(int64(s.CPU), resource.DecimalSI),
		Memory:     *resource.NewQuantity(int64(s.Memory), resource.BinarySI),
		Monthly:    strconv.FormatFloat(s.Hourly.Total().PerMonth(), 'f', 2, 64),
		Currency:   p.tariff.Currency,
		PricedFrom: string(s.Price.From),
		NotCounted: s.NotCounted,
	}
}
