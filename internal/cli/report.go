// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// sizeReport is the result of a run, independent of the output format.
type sizeReport struct {
	policyName string
	window     time.Duration
	now        time.Time
	resources  []metrics.UsageKind
	items      []item
	// withReplays requests the replay of each recommendation; keepInputs keeps the input of each plan.
	withReplays   bool
	keepInputs    bool
	defaultPolicy rightsize.Policy
	// otherPolicies are the policies selected by rules and classes, by name.
	otherPolicies map[string]rightsize.Policy
	// prices is nil if nothing is priced, as for files.
	prices *priceInfo
	// sources names the data sources; emptyNamespaces explains why requested namespaces have no workload.
	sources         sources
	emptyNamespaces []string
}

// item is one workload.
type item struct {
	workload workload.Workload
	plan     resource.Plan
	// usage is the usage of each container of the plan over the window, in the same order.
	usage []containerUsage
	// evidence is the replay of each container of the plan, in the same order; nil if not requested.
	evidence []rightsize.Evidence
	// saving is the saving of the plan, savings that of each of its containers; empty if nothing is priced.
	saving  cost.Saving
	savings []cost.Saving
	// groupSavings holds the savings of the node groups of each container, in the order of plan.Containers[i].NodeGroups.
	groupSavings [][]cost.Saving
	// template is the location of the pod template of a custom kind, read only for patches.
	template podTemplate
	// input is the input of the plan; only if the report keeps it.
	input resource.Input
}

// containerUsage is the usage of one container over the window.
type containerUsage struct{ cpu, memory usageSummary }

func (u containerUsage) of(resource metrics.UsageKind) usageSummary {
	if resource == metrics.CPU {
		return u.cpu
	}

	return u.memory
}

// usageSummary summarizes samples; it is zero without samples.
type usageSummary struct {
	samples                  uint32
	mean, p50, p95, p99, max float64
}

func (c *collector) newReport(now time.Time) *sizeReport {
	return &sizeReport{
		policyName:    c.policies.Default.Name,
		window:        c.historyLength,
		now:           now,
		resources:     []metrics.UsageKind{metrics.CPU, metrics.Memory},
		withReplays:   c.withReplays,
		keepInputs:    c.keepInputs,
		defaultPolicy: c.policies.Default,
	}
}

// decisionInput returns the input of the decision for a workload, with the policy selected for it.
func (c *collector) decisionInput(w workload.Workload, usage *profile.Usage, now time.Time) resource.Input {
	policy, reason := c.policies.For(w.Subject())
	in := usage.ResourceInput(w, policy, now)

	in.PolicyWhy = reason
	in.Reacts = c.reaction
	if c.forPatches {
		in.Autoscaler = nil // The patch of a request cannot change the targets of an autoscaler.
	}

	return in
}

func (r *sizeReport) add(w workload.Workload, plan resource.Plan, usage *profile.Usage, in resource.Input) {
	now := in.Now
	it := item{workload: w, plan: plan}
	if r.keepInputs {
		it.input = in
	}

	if in.PolicyWhy != "" {
		if r.otherPolicies == nil {
			r.otherPolicies = map[string]rightsize.Policy{}
		}
		r.otherPolicies[in.Policy.Name] = in.Policy
	}

	if r.withReplays {
		it.evidence = resource.CollectEvidence(in)
	}

	for _, c := range plan.Containers {
		it.usage = append(it.usage, summariseUsage(usage.Profile(w.Ref, c.Container), now.Add(-r.window), now))
	}
	r.items = append(r.items, it)
}

// sortByName sorts the items by namespace, name and kind.
func (r *sizeReport) sortByName() {
	slices.SortFunc(r.items, func(a, b item) int {
		x := a.workload.Ref
		y := b.workload.Ref
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
	})
}

func summariseUsage(p *rightsize.Profile, from, to time.Time) containerUsage {
	var cpu, memory histogram.Counts
	for _, d := range p.Days() {
		if d.Day >= series.DayOf(from) && d.Day.Start().Before(to) {
			cpu.Merge(&d.CPU)
			memory.Merge(&d.Memory)
		}
	}

	return containerUsage{cpu: summariseCounts(&cpu), memory: summariseCounts(&memory)}
}

func summariseCounts(c *histogram.Counts) usageSummary {
	if c.Total() == 0 {
		return usageSummary{}
	}

	return usageSummary{
		samples: c.Total(),
		mean:    c.Sum() / float64(c.Total()),
		p50:     c.Quantile(0.5),
		p95:     c.Quantile(0.95),
		p99:     c.Quantile(0.99),
		max:     c.Max(),
	}
}

// subtitle returns the number of workloads, the policy and the time of the report.
func (r *sizeReport) subtitle() string {
	return fmt.Sprintf("%s, policy %s over %s, computed at %s.", series.FormatCount(len(r.items), "workload"), r.policyName,
		series.FormatDuration(r.window), r.now.UTC().Format("2006-01-02 15:04 MST"))
}

func (r *sizeReport) fromFiles() bool { return len(r.resources) == 1 }

// podTemplate is the path of the pod spec in an object of a custom kind, or the reason why it is unknown.
type podTemplate struct {
	path          []string
	unknownReason string
}
