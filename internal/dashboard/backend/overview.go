// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/recommendation/allocation"
	"crane.io/crane/internal/recommendation/savingsrecord"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/oom"
	"crane.io/crane/pkg/savings"
)

const (
	// maxTrend is the number of days of the trend, killsShown the age of the oldest OOM kill, maxKills their number.
	maxTrend        = 400
	killsShown      = 7 * 24 * time.Hour
	maxKills        = 50
	maxFindings     = 50
	reasonOOMKilled = "OOMKilled"
)

// overviewView summarizes the worklist, the costs and the records of craned.
type overviewView struct {
	*viewAccess
	costs *costView
}

// Overview implements dashboard.Backend.
func (v *overviewView) Overview(ctx context.Context, list *contract.Worklist) (contract.Overview, error) {
	if v.fromFiles() {
		return dashboard.Summarize(list, math.Inf(1)), nil
	}

	// Costs are shared; a Guard has checked the right to them, and says which one is missing.
	var costs *allocation.Report
	var missing error
	if person, _ := dashboard.PersonOf(ctx); v.Access.Fixed == nil || person.Cluster {
		costs, _, _, missing = v.costs.costs.Get(ctx, costWindow)
	}

	out := dashboard.Summarize(list, mostSaved(costs))
	out.Notes = slices.Clone(out.Notes) // those of the shared worklist
	out.Missing = map[string]contract.Error{}

	switch {
	case missing != nil:
		out.Missing[contract.MissingCost] = dashboard.FailureOf(missing).Body
	case costs != nil:
		setClusterCost(&out.Money, costs)
		out.CostSource = costSource(costs)
		out.CostWindowSeconds = int64(costWindow.Seconds())
	}

	v.addRecords(ctx, &out)
	return out, nil
}

// mostSaved returns the cost of the cluster for a month, which bounds what all can save; infinite if it is not known.
func mostSaved(costs *allocation.Report) float64 {
	if costs == nil {
		return math.Inf(1)
	}

	monthly := costs.Allocation.Cluster.Total().PerMonth()
	if monthly <= 0 {
		return math.Inf(1)
	}

	return monthly
}

// addRecords adds what craned keeps in ConfigMaps of its namespace: savings of past days, and OOM kills. They are read with the rights of the
// user; what cannot be read is missing, with the reason.
func (v *overviewView) addRecords(ctx context.Context, out *contract.Overview) {
	c, err := v.Personal.ObjectClient()
	// Without a cluster nothing is missing: the dashboard reads Prometheus alone.
	if errors.Is(err, clusteraccess.ErrNoKubeconfig) {
		return
	}

	var record *savings.Record
	if err == nil {
		record, err = savingsrecord.Load(ctx, c, v.CranedNamespace)
	}
	if err != nil {
		out.Missing[contract.MissingTrend] = dashboard.FailureOf(unavailable(err)).Body
	}

	if record != nil {
		out.TrendSource = "ConfigMap " + v.CranedNamespace + "/" + savingsrecord.ConfigMapName
		addTrend(out, record)
	}

	kills, err := v.readKills(ctx, c)
	if err != nil {
		out.Missing[contract.MissingOOMKills] = dashboard.FailureOf(err).Body
		return
	}

	out.OOMSource = "ConfigMap " + v.CranedNamespace + "/" + oom.ConfigMapName
	addKills(out, kills)
}

// addTrend adds the days of a record in the currency of the overview, and the savings of the last day and of all days.
func addTrend(out *contract.Overview, record *savings.Record) {
	var promised, realized float64
	for _, month := range slices.Sorted(maps.Keys(record.Months)) {
		first, err := savings.ParseMonth(month)
		if err != nil {
			continue
		}

		for _, account := range record.Months[month] {
			if account.Currency != out.Currency {
				out.Notes = append(out.Notes, "the days of "+month+" in "+account.Currency+" are not part of the trend")
				continue
			}

			for _, day := range slices.Sorted(maps.Keys(account.Days)) {
				d := account.Days[day]
				if d.Hours <= 0 {
					continue
				}

				promised += d.Promised
				realized += d.Realized
				// A day that was observed in part counts as if all its hours were like those.
				rate := func(amount float64) *float64 { v := amount / d.Hours * cost.HoursPerMonth; return &v }
				out.Trend = append(out.Trend, contract.TrendPoint{
					At:                  first.AddDate(0, 0, day-1).Unix(),
					ClusterPerMonth:     rate(d.Cost),
					RecoverablePerMonth: rate(d.Available),
					PromisedPerMonth:    rate(d.Promised),
					RealisedPerMonth:    rate(d.Realized),
				})
			}
		}
	}

	if len(out.Trend) == 0 {
		return
	}

	last := out.Trend[len(out.Trend)-1]
	out.Adoption.PromisedPerMonth, out.Adoption.RealisedPerMonth = last.PromisedPerMonth, last.RealisedPerMonth
	out.Adoption.Promised = &promised
	out.Adoption.Realized = &realized
	out.Adoption.Since = out.Trend[0].At
	out.Trend = out.Trend[max(0, len(out.Trend)-maxTrend):]
}

// readKills returns the OOM kills of the record of craned, the newest first; none if there is no record.
func (v *overviewView) readKills(ctx context.Context, c client.Client) ([]contract.OOMKill, error) {
	if c == nil {
		return nil, nil
	}

	var object corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: v.CranedNamespace, Name: oom.ConfigMapName}, &object)
	if apierrors.IsNotFound(err) {
		return []contract.OOMKill{}, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}

	ledger, _, err := oom.Parse(object.Data[oom.ConfigMapKey])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", v.CranedNamespace, oom.ConfigMapName, err)
	}

	out := []contract.OOMKill{}
	after := v.Clock.Now().Add(-killsShown)
	for _, k := range ledger.Kills() {
		if k.At.Before(after) {
			continue
		}

		owners := k.Owners()
		owner := owners[min(1, len(owners)-1)] // The pod, or the first controller that its name can be of.
		kill := contract.OOMKill{
			Target: contract.Target{
				Cluster:   v.ClusterName,
				Namespace: k.Namespace,
				Kind:      owner.Kind,
				Name:      owner.Name,
			},
			Container: k.Container,
			Pod:       k.Pod,
			At:        k.At.Unix(),
		}

		if k.Memory > 0 {
			bytes := int64(k.Memory)
			kill.MemoryBytes = &bytes
		}

		out = append(out, kill)
	}

	slices.SortStableFunc(out, func(a, b contract.OOMKill) int { return cmp.Compare(b.At, a.At) })
	return out, nil
}

// addKills adds the newest kills, and what they mean for today.
func addKills(out *contract.Overview, kills []contract.OOMKill) {
	for _, k := range kills {
		target := k.Target
		i := slices.IndexFunc(out.Attention, func(a contract.Attention) bool {
			return a.Reason == reasonOOMKilled && a.Target != nil && *a.Target == target
		})
		if i < 0 && len(out.Attention) < maxFindings {
			out.Attention = append(out.Attention, contract.Attention{
				Severity: "warning",
				Reason:   reasonOOMKilled,
				Message:  "container " + k.Container + " was killed for its memory",
				Next:     "raise its memory, or find the leak",
				Target:   &target,
				Page:     "workload",
				At:       k.At,
			})
		}
	}

	out.OOMKills = kills[:min(len(kills), maxKills)]
}

// setClusterCost sets the costs of the cluster for a month.
func setClusterCost(money *contract.Money, costs *allocation.Report) {
	month := func(split cost.Split) *float64 { m := split.Total().PerMonth(); return &m }
	money.ClusterPerMonth = month(costs.Allocation.Cluster)
	money.RequestedPerMonth = month(costs.Used.Cost.Request)
	if costs.WithUsage {
		money.UsedPerMonth = month(costs.Used.Cost.Usage)
		money.IdlePerMonth = month(costs.Idle.Usage)
	}
}
