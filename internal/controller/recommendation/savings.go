// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommendation

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/workload"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
)

// Pricer knows what the nodes of the cluster cost and where pods run.
type Pricer interface {
	Prices(ctx context.Context) (*cost.Tariff, workload.Placement, error)
}

// prices is a Pricer's answer for one round.
type prices struct {
	tariff *cost.Tariff
	placed workload.Placement
}

// prices asks the pricer. A round goes on without: what a container should request does not depend on money, and the
// savings of the last round are kept.
func (r *RuleReconciler) prices(ctx context.Context, rd *round) *prices {
	if r.Pricer == nil || len(rd.pending) == 0 {
		return nil
	}
	tariff, placed, err := r.Pricer.Prices(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Recommendations are written without savings: the nodes have no prices", "reason", err.Error())
		return nil
	}
	return &prices{tariff: tariff, placed: placed}
}

// savingsOf says what a proposal is worth; nil where nothing can be counted. Without prices, and without a new number,
// it is what it was.
func (p *prices) savingsOf(of proposal) *analysisv1alpha1.Savings {
	if p == nil || of.plan.State != recommend.Ready {
		if of.old == nil {
			return nil
		}
		return of.old.Status.Savings
	}
	runs := of.target.Kind == "Job" || of.target.Kind == "CronJob"
	s := of.plan.SavingOf(p.tariff.At(p.placed.Of(of.target.Ref)), of.target.Replicas, runs)
	if s.Counted == 0 {
		return nil
	}
	return &analysisv1alpha1.Savings{
		CPU:        *resource.NewMilliQuantity(int64(s.CPU), resource.DecimalSI),
		Memory:     *resource.NewQuantity(int64(s.Memory), resource.BinarySI),
		Monthly:    strconv.FormatFloat(s.Hourly.Total().PerMonth(), 'f', 2, 64),
		Currency:   p.tariff.Currency,
		PricedFrom: string(s.Price.From),
		NotCounted: s.Left,
	}
}
