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

// report is what a run found out, before it is written in some format.
type report struct {
	policy    string
	window    time.Duration
	now       time.Time
	resources []metrics.Resource
	items     []item
	// replays asks for the replay of each recommendation, by the policy itself.
	replays      bool
	policyInFull rightsize.Policy
	// otherPolicies are those of rules and classes, by their names.
	otherPolicies map[string]rightsize.Policy
	// prices are nil where nothing is priced, as for files.
	prices *prices
	// groupBy is what lines are summed up by, empty for a line each; filtered tells that some were asked for only.
	groupBy  string
	filtered bool
	// sources say what it rests on; deserted why namespaces that were asked for have no workload.
	sources  sources
	deserted []string
}

// item is one workload.
type item struct {
	workload workload.Workload
	plan     resource.Plan
	// use is what each container of the plan used over the window, in the same order.
	use []containerUse
	// evidence is the replay of each container of the plan, in the same order; nil where it was not asked for.
	evidence []rightsize.Evidence
	// saving is what the plan is worth, savings that of each of its containers; empty where nothing is priced.
	saving  cost.Saving
	savings []cost.Saving
	// template is where the pods' template is, for kinds that do not tell; looked for where a patch is to be written.
	template podTemplate
}

// containerUse holds the use of one container over the window.
type containerUse struct{ cpu, memory use }

// use summarises samples; it is all zero where there are none.
type use struct {
	samples                  uint32
	mean, p50, p95, p99, max float64
}

func (o *recommendOptions) newReport(now time.Time) *report {
	return &report{
		policy: o.policies.Default.Name, window: o.length, now: now, resources: []metrics.Resource{metrics.CPU, metrics.Memory},
		replays: o.evidence || o.explain != "", policyInFull: o.policies.Default,
	}
}

// inputOf is what is known of a workload, with the policy that it is sized by.
func (o *recommendOptions) inputOf(w workload.Workload, usage *profile.Usage, now time.Time) resource.Input {
	policy, why := o.policies.For(w.Subject())
	in := usage.ResourceInput(w, policy, now)
	in.PolicyWhy = why
	return in
}

func (r *report) add(w workload.Workload, plan resource.Plan, usage *profile.Usage, in resource.Input) {
	now := in.Now
	it := item{workload: w, plan: plan}
	if in.PolicyWhy != "" {
		if r.otherPolicies == nil {
			r.otherPolicies = map[string]rightsize.Policy{}
		}
		r.otherPolicies[in.Policy.Name] = in.Policy
	}
	if r.replays {
		it.evidence = resource.CollectEvidence(in)
	}
	for _, c := range plan.Containers {
		it.use = append(it.use, summarise(usage.Profile(w.Ref, c.Container), now.Add(-r.window), now))
	}
	r.items = append(r.items, it)
}

// sort brings workloads in the order of their names; the sources have one of their own each.
func (r *report) sort() {
	slices.SortFunc(r.items, func(a, b item) int {
		x, y := a.workload.Ref, b.workload.Ref
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
	})
}

func summarise(p *rightsize.Profile, from, to time.Time) containerUse {
	var cpu, memory histogram.Counts
	for _, d := range p.Days() {
		if d.Day >= series.DayOf(from) && d.Day.Start().Before(to) {
			cpu.Merge(&d.CPU)
			memory.Merge(&d.Memory)
		}
	}
	return containerUse{cpu: summaryOf(&cpu), memory: summaryOf(&memory)}
}

func summaryOf(c *histogram.Counts) use {
	if c.Total() == 0 {
		return use{}
	}
	return use{
		samples: c.Total(), mean: c.Sum() / float64(c.Total()),
		p50: c.Quantile(0.5), p95: c.Quantile(0.95), p99: c.Quantile(0.99), max: c.Max(),
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

// whyNothing says why there is no recommendation.
func (r *report) whyNothing() string {
	if len(r.items) == 0 && len(r.deserted) > 0 {
		return "nothing to recommend: " + strings.Join(r.deserted, "; ")
	}
	if len(r.items) == 0 && r.filtered {
		return "nothing to recommend: no workload matches what was asked for"
	}
	if len(r.items) == 0 {
		return strings.Join(append([]string{"nothing to recommend: no workload was found"}, r.sources.missing...), "; missing is ")
	}
	for _, it := range r.items {
		if it.plan.State == recommend.Learning {
			return "nothing to recommend yet: no workload has enough history (a shorter --history asks for less)"
		}
	}
	return "nothing to recommend: no use of any workload was found in the history"
}

// totals are sums over pods: what all workloads with a number request today and should request. A container that
// lacks either number is left out of both sums.
type totals struct {
	cpuNow, cpuRecommended       float64
	memoryNow, memoryRecommended float64
}

func (r *report) totals() totals { return totalsOf(r.items) }

func totalsOf(items []item) totals {
	var t totals
	for _, it := range items {
		pods := float64(it.workload.Replicas)
		for _, c := range it.plan.Containers {
			if c.Init {
				continue // It holds nothing while the others run.
			}
			if c.Current.CPURequest != nil && c.Target.CPURequest != nil {
				t.cpuNow += pods * float64(*c.Current.CPURequest) / 1000
				t.cpuRecommended += pods * float64(*c.Target.CPURequest) / 1000
			}
			if c.Current.MemoryRequest != nil && c.Target.MemoryRequest != nil {
				t.memoryNow += pods * float64(*c.Current.MemoryRequest)
				t.memoryRecommended += pods * float64(*c.Target.MemoryRequest)
			}
		}
	}
	return t
}

// ratio is after/before - 1; ok is false where there is no before.
func ratio(before, after float64) (change float64, ok bool) {
	if before <= 0 || math.IsNaN(before) || math.IsNaN(after) {
		return 0, false
	}
	return after/before - 1, true
}
