// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"crane.io/crane/internal/component/shellquote"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/requestpatch"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/internal/recommendation/sizesources"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// workloadView explains the size of one workload.
type workloadView struct {
	*viewAccess
	worklist *worklistView
	status   *statusView
	history  *clusterHistory
}

// Workload implements dashboard.Backend.
func (v *workloadView) Workload(ctx context.Context, target contract.Target) (contract.WorkloadDetail, error) {
	out := contract.WorkloadDetail{
		Target:     target,
		Currency:   v.Prices.Currency,
		Rows:       []contract.Row{},
		Containers: []contract.ContainerDetail{},
		Commands:   map[string]string{},
	}

	list, err := v.worklist.Worklist(ctx)
	// A workload may be known from its Recommendation alone or from its history alone; only without both it is an error.
	listFailure := err

	if err == nil {
		out.Origin = list.Origin
		for _, row := range list.Rows {
			if row.Namespace == target.Namespace && row.Kind == target.Kind && row.Workload == target.Name {
				out.Rows = append(out.Rows, row)
			}
		}
	}

	found, stale, err := v.history.workload(ctx, target)
	if err != nil {
		if len(out.Rows) == 0 {
			if listFailure != nil {
				return out, listFailure
			}

			return out, err
		}

		failure := dashboard.FailureOf(err).Body
		out.HistoryError = &failure
	} else {
		v.addHistory(&out, found)
		if stale != "" {
			out.Stale = stale
		}
	}

	v.addSources(ctx, &out)
	v.addCommands(&out)
	return out, nil
}

// addHistory adds steps, replay and patch of the report of the workload.
func (v *workloadView) addHistory(out *contract.WorkloadDetail, r *sizereport.Report) {
	it := &r.Items[0]
	n := int64(it.Workload.Replicas)
	out.Replicas = &n
	out.Labels = it.Workload.Labels

	out.Policy = it.Input.Policy.Name
	out.PolicyReason = it.Input.PolicyWhy
	out.Currency = currencyOf(r, v.Prices)
	// The Recommendation wins over a row that is computed here with other settings.
	if len(out.Rows) == 0 {
		out.Rows = append(out.Rows, rowOf(v.ClusterName, r, it))
		out.Origin = originOf(r)
	} else if out.Rows[0].Name != "" {
		out.Notes = append(slices.Clone(out.Notes), "steps, replay and what-if are computed by this dashboard with the policy "+out.Policy+
			"; the Recommendation has the settings of its rule")
	}

	for i := range it.Plan.Containers {
		out.Containers = append(out.Containers, containerDetail(r, it, i))
	}

	out.PatchYAML = requestpatch.StrategicMergeText(&sizereport.Report{
		Items:      []sizereport.Item{*it},
		Resources:  r.Resources,
		Now:        r.Now,
		Window:     r.Window,
		PolicyName: r.PolicyName,
	})
}

func containerDetail(r *sizereport.Report, it *sizereport.Item, i int) contract.ContainerDetail {
	rec := it.Plan.Containers[i]
	c, _ := it.Workload.Container(rec.Container)
	out := contract.ContainerDetail{Name: rec.Container, Role: string(c.Role)}

	// Replays, savings and usage exist only if the report has computed them.
	var evidence rightsize.Evidence
	if i < len(it.Evidence) {
		evidence = it.Evidence[i]
	}

	var saving cost.Saving
	if i < len(it.Savings) {
		saving = it.Savings[i]
	}

	var usage sizereport.ContainerUsage
	if i < len(it.Usage) {
		usage = it.Usage[i]
	}

	if slices.Contains(r.Resources, metrics.CPU) {
		out.CPU = resourceDetail(rec, metrics.CPU, usage.CPU, evidence.CPU, monthlyPrice(it, metrics.CPU))
		out.CPU.SavingPerMonth = monthlyIfCounted(saving, saving.Hourly.CPU)
	}

	if slices.Contains(r.Resources, metrics.Memory) {
		out.Memory = resourceDetail(rec, metrics.Memory, usage.Memory, evidence.Memory, monthlyPrice(it, metrics.Memory))
		out.Memory.SavingPerMonth = monthlyIfCounted(saving, saving.Hourly.Memory)
	}

	return out
}

func monthlyIfCounted(s cost.Saving, part cost.Nanos) *float64 {
	if s.Counted == 0 {
		return nil
	}

	m := part.PerMonth()
	return &m
}

// monthlyPrice returns the price of one core or byte of all pods for a month; 0 without prices.
func monthlyPrice(it *sizereport.Item, kind metrics.UsageKind) float64 {
	if len(it.Savings) == 0 {
		return 0
	}

	pods := float64(it.Workload.Replicas)
	if kind == metrics.CPU {
		return float64(it.Saving.Price.CPU) * pods * cost.HoursPerMonth
	}

	return float64(it.Saving.Price.Memory) * pods * cost.HoursPerMonth / (1 << 30)
}

func resourceDetail(rec rightsize.Recommendation, kind metrics.UsageKind, usage sizereport.UsageSummary, replay rightsize.Replay, price float64) *contract.ResourceDetail {
	// Requests are in cores and bytes on the pages.
	sizing := rec.CPU
	scale := 1000.0
	out := &contract.ResourceDetail{Unit: string(rightsize.Cores)}
	if kind == metrics.CPU {
		out.RequestNow = amountOf(rec.Current.CPURequest, scale)
		out.LimitNow = amountOf(rec.Current.CPULimit, scale)
		out.RequestRecommended = amountOf(rec.Target.CPURequest, scale)
		out.LimitRecommended = amountOf(rec.Target.CPULimit, scale)
	} else {
		sizing = rec.Memory
		scale = 1
		out.Unit = string(rightsize.BytesUnit)
		out.RequestNow = amountOf(rec.Current.MemoryRequest, scale)
		out.LimitNow = amountOf(rec.Current.MemoryLimit, scale)
		out.RequestRecommended = amountOf(rec.Target.MemoryRequest, scale)
		out.LimitRecommended = amountOf(rec.Target.MemoryLimit, scale)
	}

	out.Status = string(sizing.Status)
	out.Message = sizing.Message
	out.Confidence = float64(sizing.Confidence)
	out.Days = sizing.Days

	out.Usage = contract.UsageSummary{
		Samples: int64(usage.Samples),
		Mean:    usage.Mean,
		P50:     usage.P50,
		P95:     usage.P95,
		P99:     usage.P99,
		Max:     usage.Max,
	}

	// Steps explain how the number came about, in the order in which they were taken.
	out.Steps = []contract.Step{}
	for _, s := range sizing.Steps {
		out.Steps = append(out.Steps, contract.Step{
			Code:   string(s.Code),
			From:   s.From,
			To:     s.To,
			Detail: s.Detail,
			Text:   s.String(),
		})
	}

	for _, f := range sizing.Flags {
		out.Flags = append(out.Flags, contract.Flag{Code: string(f.Code), Detail: f.Detail})
	}

	if c := sizing.Calibration; c != nil {
		out.Calibration = &contract.Calibration{
			Target:   float64(c.Target),
			Achieved: float64(c.Achieved),
			Days:     int64(c.Days),
			Message:  c.ReplayText(),
		}
	}

	if replay.Days > 0 {
		out.Replay = replayOf(replay, price)
	}

	return out
}

func amountOf[T units.MilliCPU | units.Bytes](v *T, perUnit float64) *float64 {
	if v == nil {
		return nil
	}

	f := float64(*v) / perUnit
	return &f
}

// replayOf converts a replay; price is that of one unit for a month, 0 if unknown.
func replayOf(r rightsize.Replay, price float64) *contract.Replay {
	out := &contract.Replay{
		From:     r.From,
		To:       r.To,
		Days:     r.Days,
		Outcomes: []contract.Outcome{},
	}

	for _, o := range r.Outcomes {
		// JSON has no infinity: a policy without a finite request is left out.
		if !finite(float64(o.Slack), float64(o.Violation), float64(o.Overrun), o.Request, o.Changes) {
			continue
		}

		outcome := contract.Outcome{
			Name:               o.Policy,
			Request:            o.Request,
			Slack:              float64(o.Slack),
			MinutesAbovePerDay: float64(o.Violation) * dayMinutes,
			Overrun:            float64(o.Overrun),
			OOMDays:            o.OOMDays,
			ChangesPerDay:      o.Changes,
		}

		if o.Throttled != nil {
			minutes := float64(*o.Throttled) * dayMinutes
			outcome.ThrottledMinutesPerDay = &minutes
		}

		if price > 0 {
			monthly := o.Request * price
			outcome.CostPerMonth = &monthly
		}

		out.Outcomes = append(out.Outcomes, outcome)
	}

	for _, p := range r.Curve {
		if finite(float64(p.Slack), float64(p.Violation), p.Request) {
			out.Curve = append(out.Curve, contract.CurvePoint{
				Percentile:         float64(p.Quantile),
				Request:            p.Request,
				Slack:              float64(p.Slack),
				MinutesAbovePerDay: float64(p.Violation) * dayMinutes,
			})
		}
	}

	return out
}

// dayMinutes converts a share of time into minutes per day.
const dayMinutes = 24 * 60

// finite reports whether all values can be written as JSON.
func finite(values ...float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// addSources adds the origins of the size, as in crane explain workload.
func (v *workloadView) addSources(ctx context.Context, out *contract.WorkloadDetail) {
	if v.fromFiles() {
		return
	}

	c, err := v.Personal.ObjectClient()
	if err != nil {
		return // The page says where the other numbers are from.
	}

	target, err := workloadname.Find(ctx, c, out.Target.Namespace, out.Target.Namespace+"/"+out.Target.Kind+"/"+out.Target.Name)
	if err == nil {
		var found sizesources.Sources
		found, err = sizesources.Read(ctx, c, target)
		for _, s := range found.Sources {
			out.Sources = append(out.Sources, contract.SizeSource(s))
		}
	}

	if err != nil {
		out.Notes = append(slices.Clone(out.Notes), "the origins of the size cannot be read: "+metrics.PublicMessage(err))
	}

	for _, row := range out.Rows {
		out.CanAdopt = out.CanAdopt || row.Name != "" && (row.Type == "Resource" || row.Type == "Replicas") && v.status.Cluster(ctx).Rights.Adopt
		if row.Phase != "" && out.Adoption == nil {
			out.Adoption = &contract.AdoptionProgress{Phase: row.Phase, Message: row.Message}
		}
	}
}

func (v *workloadView) addCommands(out *contract.WorkloadDetail) {
	if v.fromFiles() || out.Target.Namespace == "" {
		return
	}

	name := strings.ToLower(out.Target.Kind) + "/" + out.Target.Name
	out.Commands["explain"] = shellquote.Command([]string{"crane", "explain", "workload"}, out.Target.Namespace+"/"+name)
	out.Commands["recommend"] = shellquote.Command([]string{"crane", "recommend", "-n", out.Target.Namespace, "--explain=" + name})
	if slices.ContainsFunc(out.Rows, func(r contract.Row) bool { return r.Name != "" }) {
		out.Commands["adopt"] = shellquote.Command([]string{"crane", "adopt", "-n", out.Target.Namespace, "--yes"}, name)
	}
}

// WhatIf implements dashboard.Backend. It replays the history of one container with other settings.
func (v *workloadView) WhatIf(ctx context.Context, target contract.Target, container string, settings contract.WhatIfSettings) (contract.WhatIf, error) {
	found, stale, err := v.history.workload(ctx, target)
	if err != nil {
		return contract.WhatIf{}, err
	}

	it := found.Items[0]
	i := slices.IndexFunc(it.Plan.Containers, func(c rightsize.Recommendation) bool { return c.Container == container })
	if i < 0 {
		return contract.WhatIf{}, dashboard.NewResponseError(http.StatusNotFound, contract.ReasonNotFound, fmt.Sprintf("the workload has no container %q with a history", container), "")
	}

	in := it.Input
	policy := in.Policy
	out := contract.WhatIf{
		Origin:    originOf(found),
		Currency:  currencyOf(found, v.Prices),
		Container: container,
		Policy:    settingsOf(policy),
	}

	out.Stale = stale
	apply(&policy, settings)

	if err := policy.Validate(); err != nil {
		return contract.WhatIf{}, dashboard.NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, err.Error(), "choose other values")
	}

	out.Settings = settingsOf(policy)
	in.Policy = policy
	in.PolicyWhy = ""
	changed := it
	changed.Plan = resource.Decide(in)
	changed.Input = in

	changed.Evidence = resource.CollectEvidence(in)
	changed.Saving = changed.Plan.SavingOf(it.Saving.Price, it.Workload.Replicas, it.Workload.RunsToCompletion())
	changed.Savings = nil
	for c := range changed.Plan.Containers {
		changed.Savings = append(changed.Savings, changed.Plan.ContainerSaving(c, it.Saving.Price, it.Workload.Replicas, it.Workload.RunsToCompletion()))
	}

	// Without prices there is no saving to compare with.
	if len(it.Savings) == 0 {
		changed.Savings = nil
		changed.Saving = cost.Saving{}
	}

	detail := containerDetail(found, &changed, i)
	before := containerDetail(found, &it, i)
	out.CPU = whatIfResource(detail.CPU, before.CPU)
	out.Memory = whatIfResource(detail.Memory, before.Memory)

	return out, nil
}

func whatIfResource(now, before *contract.ResourceDetail) *contract.WhatIfResource {
	if now == nil {
		return nil
	}

	out := &contract.WhatIfResource{ResourceDetail: *now}
	if now.SavingPerMonth != nil && before.SavingPerMonth != nil {
		delta := *now.SavingPerMonth - *before.SavingPerMonth
		out.SavingPerMonthDelta = &delta
	}

	return out
}

// settingsOf returns the settings that a policy uses.
func settingsOf(p rightsize.Policy) contract.WhatIfSettings {
	value := func(r units.Ratio) *float64 { f := float64(r); return &f }
	out := contract.WhatIfSettings{CPUMargin: value(p.CPU.Margin), MemoryMargin: value(p.Memory.Margin), MemoryPercentile: value(p.Memory.Percentile)}
	if p.CPU.Method == rightsize.Calibrated {
		out.Target = value(p.CPU.Target)
	} else {
		out.CPUPercentile = value(p.CPU.Percentile)
	}

	return out
}

// apply changes a policy: a target makes it calibrated, a percentile of CPU a plain percentile of all samples.
func apply(p *rightsize.Policy, s contract.WhatIfSettings) {
	switch {
	case s.Target != nil:
		p.CPU.Method = rightsize.Calibrated
		p.CPU.Target = units.Ratio(*s.Target)
	case s.CPUPercentile != nil:
		p.CPU.Method = rightsize.Percentile
		p.CPU.Target = 0
		p.CPU.Percentile = units.Ratio(*s.CPUPercentile)
		p.CPU.Envelope = rightsize.EnvelopePolicy{}
	}

	if s.CPUMargin != nil {
		p.CPU.Margin = units.Ratio(*s.CPUMargin)
	}
	if s.MemoryPercentile != nil {
		p.Memory.Percentile = units.Ratio(*s.MemoryPercentile)
	}

	if s.MemoryMargin != nil {
		p.Memory.Margin = units.Ratio(*s.MemoryMargin)
		p.Memory.MaxMargin = units.Ratio(*s.MemoryMargin)
	}
}
