// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math"
	"strings"

	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/recommend"
)

// report is a part of a report, as the flags select, sort and group it.
type report struct {
	*sizereport.Report

	// groupBy is the grouping of the rows, empty for one row per container; filtered is set if the view selects a
	// part of the report.
	groupBy string
	// sortBy is the order of the items and, by the sums of their members, of the groups; empty for the order by name.
	sortBy     string
	filtered   bool
	filterHint string
}

func (r *report) hasNumbers() bool {
	for _, it := range r.Items {
		if it.Plan.State == recommend.Ready {
			return true
		}
	}

	return false
}

// emptyMessage explains why there is no recommendation.
func (r *report) emptyMessage() string {
	if len(r.Items) == 0 && len(r.EmptyNamespaces) > 0 {
		return "nothing to recommend: " + strings.Join(r.EmptyNamespaces, "; ")
	}

	if len(r.Items) == 0 && r.filtered {
		return "nothing to recommend: no workload matches the filters" + r.filterHint
	}

	if len(r.Items) == 0 {
		return strings.Join(append([]string{"nothing to recommend: no workload was found"}, r.Sources.Missing...), "; missing metric: ")
	}

	for _, it := range r.Items {
		if it.Plan.State == recommend.Learning {
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

func (r *report) totals() requestTotals { return sumRequests(r.Items) }

func sumRequests(items []sizereport.Item) requestTotals {
	var t requestTotals
	for _, it := range items {
		now, after := it.Plan.Requests(it.Workload.Replicas, it.Workload.RunsToCompletion())
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
