// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/internal/metrics"
)

// Usage metrics of cAdvisor.
const (
	cpuMetric    = "container_cpu_usage_seconds_total"
	memoryMetric = "container_memory_working_set_bytes"
	// cacheMetric is active_file, the page cache that is part of the working set. Recent kubelets export it; Kubernetes 1.36 (cAdvisor
	// 0.56) is one of them.
	cacheMetric = "container_memory_total_active_file_bytes"
	rssMetric   = "container_memory_rss"
)

// minRateScrapes is the number of scrape intervals in the window of a rate: with four, one scrape can be missed and another be late, and
// two samples are left.
const minRateScrapes = 4

// byContainerLabels aggregates series that describe the same container.
const byContainerLabels = "max by (namespace, pod, container)"

// usageMetric returns the metric that measures a resource.
func usageMetric(r metrics.Resource) (string, error) {
	switch r {
	case metrics.CPU:
		return cpuMetric, nil
	case metrics.Memory:
		return memoryMetric, nil
	case metrics.UnreclaimableMemory:
		return cacheMetric, nil
	case metrics.AnonymousMemory:
		return rssMetric, nil
	}
	return "", fmt.Errorf("resource %q: must be %s, %s, %s or %s", r, metrics.CPU, metrics.Memory, metrics.UnreclaimableMemory, metrics.AnonymousMemory)
}

// expressions builds PromQL expressions.
type expressions struct {
	// extra matchers are added to each selector.
	extra []Matcher
}

// selector returns a selector with the given matchers and the extra ones.
func (x expressions) selector(metric string, own ...Matcher) string {
	return selector(metric, append(slices.Clip(own), x.extra...)...)
}

// containers returns a selector of real containers, without the cgroups of pods and nodes and without pause containers.
func (x expressions) containers(metric string, more ...Matcher) string {
	return x.selector(metric, append([]Matcher{
		{Label: "container", Op: "!=", Value: ""},
		{Label: "container", Op: "!=", Value: "POD"},
	}, more...)...)
}

// latest returns the largest value of a metric within the inventory window, by some labels.
func (x expressions) latest(metric, by string, own ...Matcher) string {
	return fmt.Sprintf("max by (%s) (last_over_time(%s[%s]))", by, x.selector(metric, own...), promDuration(inventoryWindow))
}

// usage returns the expression whose value at t is the usage in (t-step, t]. The package comment gives the reasons.
func (x expressions) usage(metric string, g gridPlan, more ...Matcher) string {
	sel, window := x.containers(metric, more...), openRange(g.window)
	switch metric {
	case cpuMetric:
		return fmt.Sprintf("%s (sum without (cpu) (rate(%s[%s])))", byContainerLabels, sel, window)
	case cacheMetric:
		// Within each short window, the smallest cache subtracted from the largest working set is an upper bound of the unreclaimable memory.
		// The two series are matched by all labels, so that a restarted container, which has a new id, is not compared with the earlier one.
		short := openRange(g.pairing)
		return fmt.Sprintf("clamp_min(%s (max_over_time((max_over_time(%s[%s]) - min_over_time(%s[%s]))[%s:%s])), 0)",
			byContainerLabels, x.containers(memoryMetric, more...), short, sel, short, window, promDuration(g.pairing))
	}
	return fmt.Sprintf("%s (max_over_time(%s[%s]))", byContainerLabels, sel, window)
}

// openRange returns a range of d that excludes its start. Before version 3, Prometheus included samples at both ends, so that a sample on
// the border between two steps belonged to both; a range shorter by a millisecond gives the same result in all versions.
func openRange(d time.Duration) string {
	return strconv.FormatInt((d-time.Millisecond).Milliseconds(), 10) + "ms"
}

// promDuration formats d for a range selector.
func promDuration(d time.Duration) string { return strconv.FormatInt(d.Milliseconds()/1000, 10) + "s" }

// gridPlan is the grid of a request: one value per step, each computed from the samples of the window before its end.
type gridPlan struct {
	step, window time.Duration
	// pairing is the window in which samples of two metrics count as simultaneous. It is set for UnreclaimableMemory only.
	pairing time.Duration
}

// hourlyGrid returns the grid of a resource with one value per hour.
func hourlyGrid(metric string, scrape time.Duration) gridPlan {
	g := gridPlan{step: time.Hour, window: time.Hour}
	if metric == cacheMetric {
		g.pairing = partOfHour(max(time.Minute, scrape))
	}
	return g
}

// planGrid chooses step and window. A requested step is kept; the window then covers at least minRateScrapes scrapes for CPU, and two for
// memory, so that a late scrape leaves no gap.
func planGrid(metric string, scrape, requested time.Duration) gridPlan {
	step := requested
	if step == 0 {
		step = defaultStep(scrape)
	}
	if metric == cpuMetric {
		return gridPlan{step: step, window: max(step, minRateScrapes*scrape)}
	}
	return gridPlan{step: step, window: max(step, 2*scrape)}
}

// defaultStep returns at least a minute and minRateScrapes scrapes, rounded up to a round part of an hour, so that a day has a whole number
// of steps and each sample counts once. A scrape interval of 15s gives 1m, 30s gives 2m, 60s gives 5m.
func defaultStep(scrape time.Duration) time.Duration {
	return partOfHour(max(time.Minute, minRateScrapes*scrape))
}

// partOfHour rounds a duration up to a round part of an hour; an hour is the maximum.
func partOfHour(least time.Duration) time.Duration {
	for _, minutes := range []time.Duration{1, 2, 5, 10, 15, 20, 30, 60} {
		if step := minutes * time.Minute; step >= least {
			return step
		}
	}
	return time.Hour
}

const day = 24 * time.Hour

// checkStep accepts 0 and whole seconds that divide a day.
func checkStep(step time.Duration) error {
	if step < 0 || step%time.Second != 0 || step > 0 && day%step != 0 {
		return fmt.Errorf("step %v: must be whole seconds that divide a day, such as 1m, 5m or 1h", step)
	}
	return nil
}
