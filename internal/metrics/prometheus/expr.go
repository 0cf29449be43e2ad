// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"strconv"
	"time"

	"crane.io/crane/internal/metrics"
)

// Metrics of cAdvisor that hold usage.
const (
	cpuMetric    = "container_cpu_usage_seconds_total"
	memoryMetric = "container_memory_working_set_bytes"
	// cacheMetric is active_file, the page cache that is part of the working set. Newer kubelets export it; that of
	// Kubernetes 1.36 (cAdvisor 0.56) does.
	cacheMetric = "container_memory_total_active_file_bytes"
	rssMetric   = "container_memory_rss"
)

// ratePoints is the number of scrape intervals that a rate looks at: with four, one scrape may be missed and another
// be late, and there are still two samples.
const ratePoints = 4

func usageMetric(r metrics.Resource) (string, error) {
	switch r {
	case metrics.CPU:
		return cpuMetric, nil
	case metrics.Memory:
		return memoryMetric, nil
	case metrics.HeldMemory:
		return cacheMetric, nil
	case metrics.AnonymousMemory:
		return rssMetric, nil
	}
	return "", fmt.Errorf("resource %q: want %s, %s, %s or %s", r, metrics.CPU, metrics.Memory, metrics.HeldMemory, metrics.AnonymousMemory)
}

// containers selects real containers: no pod or node cgroups, no pause containers.
func (s *Source) containers(metric string, more ...Matcher) string {
	own := append([]Matcher{
		{Label: "container", Op: "!=", Value: ""},
		{Label: "container", Op: "!=", Value: "POD"},
	}, more...)
	return selector(metric, s.matchers(own...)...)
}

// usageExpr is the expression whose value at t is the use in (t-step, t]. The doc comment of the package says why.
func (s *Source) usageExpr(metric string, g gridPlan, more ...Matcher) string {
	sel := s.containers(metric, more...)
	switch metric {
	case cpuMetric:
		return fmt.Sprintf("max by (namespace, pod, container) (sum without (cpu) (rate(%s[%s])))", sel, openRange(g.window))
	case cacheMetric:
		// The least cache from the most memory of the hour: no less than what was held at any time in it.
		return fmt.Sprintf("clamp_min(max by (namespace, pod, container) (max_over_time(%s[%s])) - min by (namespace, pod, container) (min_over_time(%s[%s])), 0)",
			s.containers(memoryMetric, more...), openRange(g.window), sel, openRange(g.window))
	}
	return fmt.Sprintf("max by (namespace, pod, container) (max_over_time(%s[%s]))", sel, openRange(g.window))
}

// openRange is a range of d without its begin. Before version 3 Prometheus counted a sample at either end, so that one on
// the border between two steps belonged to both; a millisecond less makes all versions agree.
func openRange(d time.Duration) string {
	return strconv.FormatInt((d-time.Millisecond).Milliseconds(), 10) + "ms"
}

// gridPlan is the grid of a reading: values every step, each made from the samples of the window before its end.
type gridPlan struct {
	step, window time.Duration
}

// planGrid chooses step and window. A step that was asked for is kept; the window then covers at least ratePoints
// scrapes for CPU, and two for memory, so that a late scrape is no gap.
func planGrid(metric string, scrape, asked time.Duration) gridPlan {
	step := asked
	if step == 0 {
		step = defaultStep(scrape)
	}
	if metric == cpuMetric {
		return gridPlan{step: step, window: max(step, ratePoints*scrape)}
	}
	if step >= 2*scrape {
		return gridPlan{step: step, window: step}
	}
	return gridPlan{step: step, window: max(step, 2*scrape)}
}

// defaultStep is at least a minute and ratePoints scrapes, rounded up to a round part of an hour, so that days have a
// whole number of steps and no sample is looked at twice. Scraping every 15s gives 1m, every 30s 2m, every 60s 5m.
func defaultStep(scrape time.Duration) time.Duration {
	least := max(time.Minute, ratePoints*scrape)
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
		return fmt.Errorf("step %v: want whole seconds that divide a day, such as 1m, 5m or 1h", step)
	}
	return nil
}
