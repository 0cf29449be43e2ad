// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sizereport computes a report of the recommended requests of workloads from their history, with prices.
package sizereport

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/clusterstate"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Report is the result of a run, independent of the output format.
type Report struct {
	PolicyName string
	Window     time.Duration
	Now        time.Time
	Resources  []metrics.UsageKind
	Items      []Item
	// WithReplays requests the replay of each recommendation; keepInputs keeps the input of each plan.
	WithReplays   bool
	keepInputs    bool
	DefaultPolicy rightsize.Policy
	// OtherPolicies are the policies selected by rules and classes, by name.
	OtherPolicies map[string]rightsize.Policy
	// Prices is nil if nothing is priced, as for files.
	Prices *PriceInfo
	// Sources names the data sources; emptyNamespaces explains why requested namespaces have no workload.
	Sources         clusterstate.Sources
	EmptyNamespaces []string
}

// Item is one workload.
type Item struct {
	Workload workload.Workload
	Plan     resource.Plan
	// Usage is the usage of each container of the plan over the window, in the same order.
	Usage []ContainerUsage
	// Evidence is the replay of each container of the plan, in the same order; nil if not requested.
	Evidence []rightsize.Evidence
	// Saving is the saving of the plan, savings that of each of its containers; empty if nothing is priced.
	Saving  cost.Saving
	Savings []cost.Saving
	// GroupSavings holds the savings of the node groups of each container, in the order of plan.Containers[i].NodeGroups.
	GroupSavings [][]cost.Saving
	// Template is the location of the pod template of a custom kind, read only for patches.
	Template PodTemplate
	// Refusal is why pods with the recommended size would be refused, or why that is unknown; read only for patches.
	Refusal string
	// Input is the input of the plan; only if the report keeps it.
	Input resource.Input
}

// ContainerUsage is the usage of one container over the window.
type ContainerUsage struct{ CPU, Memory UsageSummary }

// For returns the usage of a resource.
func (u ContainerUsage) For(resource metrics.UsageKind) UsageSummary {
	if resource == metrics.CPU {
		return u.CPU
	}

	return u.Memory
}

// UsageSummary summarizes samples; it is zero without samples.
type UsageSummary struct {
	Samples                  uint32
	Mean, P50, P95, P99, Max float64
}

// NewReport returns a report without workloads.
func (c *Collector) NewReport(now time.Time) *Report {
	return &Report{
		PolicyName:    c.Policies.Default.Name,
		Window:        c.HistoryLength,
		Now:           now,
		Resources:     []metrics.UsageKind{metrics.CPU, metrics.Memory},
		WithReplays:   c.WithReplays,
		keepInputs:    c.KeepInputs,
		DefaultPolicy: c.Policies.Default,
	}
}

// decisionInput returns the input of the decision for a workload, with the policy selected for it.
func (c *Collector) decisionInput(w workload.Workload, usage *profile.Usage, now time.Time) resource.Input {
	policy, reason := c.Policies.For(w.Subject())
	in := usage.ResourceInput(w, policy, now)

	in.PolicyWhy = reason
	in.Reacts = c.Reaction
	if c.ForPatches {
		in.Autoscaler = nil // The patch of a request cannot change the targets of an autoscaler.
	}

	return in
}

func (r *Report) add(w workload.Workload, plan resource.Plan, usage *profile.Usage, in resource.Input) {
	now := in.Now
	it := Item{Workload: w, Plan: plan}
	if r.keepInputs {
		it.Input = in
	}

	if in.PolicyWhy != "" {
		if r.OtherPolicies == nil {
			r.OtherPolicies = map[string]rightsize.Policy{}
		}
		r.OtherPolicies[in.Policy.Name] = in.Policy
	}

	if r.WithReplays {
		it.Evidence = resource.CollectEvidence(in)
	}

	for _, c := range plan.Containers {
		it.Usage = append(it.Usage, SummarizeUsage(usage.Profile(w.Ref, c.Container), now.Add(-r.Window), now))
	}
	r.Items = append(r.Items, it)
}

// sortByName sorts the items by namespace, name and kind.
func (r *Report) sortByName() {
	slices.SortFunc(r.Items, func(a, b Item) int {
		x := a.Workload.Ref
		y := b.Workload.Ref
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
	})
}

// SummarizeUsage summarizes the usage of a container on the days from one time to another.
func SummarizeUsage(p *rightsize.Profile, from, to time.Time) ContainerUsage {
	var cpu, memory histogram.Counts
	for _, d := range p.Days() {
		if d.Day >= series.DayOf(from) && d.Day.Start().Before(to) {
			cpu.Merge(&d.CPU)
			memory.Merge(&d.Memory)
		}
	}

	return ContainerUsage{CPU: summarizeCounts(&cpu), Memory: summarizeCounts(&memory)}
}

func summarizeCounts(c *histogram.Counts) UsageSummary {
	if c.Total() == 0 {
		return UsageSummary{}
	}

	return UsageSummary{
		Samples: c.Total(),
		Mean:    c.Sum() / float64(c.Total()),
		P50:     c.Quantile(0.5),
		P95:     c.Quantile(0.95),
		P99:     c.Quantile(0.99),
		Max:     c.Max(),
	}
}

// Subtitle returns the number of workloads, the policy and the time of the report.
func (r *Report) Subtitle() string {
	return fmt.Sprintf("%s, policy %s over %s, computed at %s.", units.FormatCount(len(r.Items), "workload"), r.PolicyName,
		units.FormatDuration(r.Window), r.Now.UTC().Format("2006-01-02 15:04 MST"))
}

// FromFiles reports whether the report is of files, which have one resource and no current requests.
func (r *Report) FromFiles() bool { return len(r.Resources) == 1 }

// PodTemplate is the path of the pod spec in an object of a custom kind, or the reason why it is unknown.
type PodTemplate struct {
	Path          []string
	UnknownReason string
}
