// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// report is the result of a run, independent of the output format.
type report struct {
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
	// groupBy is the grouping of the rows, empty for one row per container; filtered is set if the view selects a
	// part of the report.
	groupBy string
	// sortBy is the order of the items and, by the sums of their members, of the groups; empty for the order by name.
	sortBy     string
	filtered   bool
	filterHint string
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

func (o *recommendOptions) newReport(now time.Time) *report {
	return &report{
		policyName:    o.policies.Default.Name,
		window:        o.historyLength,
		now:           now,
		resources:     []metrics.UsageKind{metrics.CPU, metrics.Memory},
		withReplays:   o.evidence || o.explain != "",
		keepInputs:    o.keepInputs,
		defaultPolicy: o.policies.Default,
	}
}

// decisionInput returns the input of the decision for a workload, with the policy selected for it.
func (o *recommendOptions) decisionInput(w workload.Workload, usage *profile.Usage, now time.Time) resource.Input {
	policy, reason := o.policies.For(w.Subject())
	in := usage.ResourceInput(w, policy, now)

	in.PolicyWhy = reason
	in.Reacts = o.reaction
	if isPatch(o.output) {
		in.Autoscaler = nil // The patch of a request cannot change the targets of an autoscaler.
	}

	return in
}

func (r *report) add(w workload.Workload, plan resource.Plan, usage *profile.Usage, in resource.Input) {
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
func (r *report) sortByName() {
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

func (r *report) hasNumbers() bool {
	for _, it := range r.items {
		if it.plan.State == recommend.Ready {
			return true
		}
	}

	return false
}

// emptyMessage explains why there is no recommendation.
func (r *report) emptyMessage() string {
	if len(r.items) == 0 && len(r.emptyNamespaces) > 0 {
		return "nothing to recommend: " + strings.Join(r.emptyNamespaces, "; ")
	}

	if len(r.items) == 0 && r.filtered {
		return "nothing to recommend: no workload matches the filters" + r.filterHint
	}

	if len(r.items) == 0 {
		return strings.Join(append([]string{"nothing to recommend: no workload was found"}, r.sources.missing...), "; missing metric: ")
	}

	for _, it := range r.items {
		if it.plan.State == recommend.Learning {
			return "nothing to recommend yet: no workload has enough history (a shorter --history requires less)"
		}
	}

	return "nothing to recommend: the history contains no usage of any workload"
}

// requestTotals are the current and recommended requests summed over the pods of all workloads, in cores and bytes. They include what
// savings count: a resource that lacks either number is excluded from both sums, and a job counts with its mean number of running pods.
type requestTotals struct {
	cpuNow, cpuRecommended       float64
	memoryNow, memoryRecommended float64
}

func (r *report) totals() requestTotals { return sumRequests(r.items) }

func sumRequests(items []item) requestTotals {
	var t requestTotals
	for _, it := range items {
		now, after := it.plan.Requests(it.workload.Replicas, runsToCompletion(it.workload.Ref))
		t.cpuNow += float64(now.CPU) / 1000
		t.cpuRecommended += float64(after.CPU) / 1000
		t.memoryNow += float64(now.Memory)
		t.memoryRecommended += float64(after.Memory)
	}

	return t
}

// ratio returns after/before - 1; ok is false without a positive before.
func ratio(before, after float64) (change float64, ok bool) {
	if before <= 0 || math.IsNaN(before) || math.IsNaN(after) {
		return 0, false
	}

	return after/before - 1, true
}
