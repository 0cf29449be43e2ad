// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"time"

	"crane.io/crane/internal/metrics"
)

// Resolutions of the search for the largest limits of a day, and for nodes. Pods that live between two of these times have the bound of
// their node.
const (
	limitsStep = 15 * time.Minute
	nodesStep  = 6 * time.Hour
)

// capacityReader implements metrics.CapacityReader.
type capacityReader struct{ *queries }

// Capacities implements metrics.CapacityReader with three queries: the limits and the throttling of finished days, those of the rest, and the nodes. What the
// server rejects as too large is read in shorter parts, and is unknown where that is not enough.
func (c *capacityReader) Capacities(ctx context.Context, w metrics.Window, namespaces []string) (*metrics.Capacities, error) {
	out := metrics.NewCapacities()
	end := w.End.UTC().Truncate(time.Second)
	if now := c.now().UTC().Truncate(time.Second); now.Before(end) {
		end = now
	}

	start := w.Start.UTC().Truncate(day)
	if !start.Before(end) {
		return out, nil
	}

	if err := c.limits(ctx, out, start, end, newScope(namespaces)); err != nil && !isTooLarge(err) {
		return nil, fmt.Errorf("limits of containers: %w", err)
	}

	if err := c.nodes(ctx, out, start, end); err != nil && !isTooLarge(err) {
		return nil, fmt.Errorf("capacities of nodes: %w", err)
	}

	return out, nil
}

// limits reads the largest limits of each day.
func (c *capacityReader) limits(ctx context.Context, out *metrics.Capacities, start, end time.Time, in scope) error {
	midnight := end.Truncate(day)

	return c.eachBatch(ctx, in, func(matchers []Matcher) error {
		if err := c.limitsOfDays(ctx, out, start, midnight, matchers); err != nil {
			return err
		}

		if end.Sub(midnight) < time.Second {
			return nil
		}

		list, err := c.Instant(ctx, c.expr.largestLimits(end.Sub(midnight), matchers), end)
		for _, sample := range list {
			addLimit(out, sample.Labels, midnight, midnight.Add(day), sample.Value)
		}

		return err
	})
}

// limitsOfDays reads the largest limits of each of some whole days. The server holds the values of all days in memory at once, so it may
// reject many of them and answer for fewer.
func (c *capacityReader) limitsOfDays(ctx context.Context, out *metrics.Capacities, start, end time.Time, matchers []Matcher) error {
	if !start.Before(end) {
		return nil
	}

	// The value at t covers (t-1d, t].
	list, err := c.Range(ctx, c.expr.largestLimits(day, matchers), metrics.Window{Start: start.Add(day), End: end.Add(time.Second), Step: day})
	if days := end.Sub(start) / day; isTooLarge(err) && days > 1 {
		c.client.count(func(s *metrics.Stats) { s.Splits++ })
		middle := start.Add(days / 2 * day)
		if err := c.limitsOfDays(ctx, out, start, middle, matchers); err != nil {
			return err
		}

		return c.limitsOfDays(ctx, out, middle, end, matchers)
	}

	if err != nil {
		return err
	}

	for _, l := range list {
		for i, v := range l.Values {
			addLimit(out, l.Labels, l.Time(i).Add(-day), l.Time(i), v)
		}
	}

	return nil
}

// throttledResource is the label of the share of throttled periods, beside the limits of resources.
const throttledResource = "throttled"

func addLimit(out *metrics.Capacities, l metrics.Labels, from, to time.Time, v float64) {
	switch {
	case l["resource"] == throttledResource:
		if v >= 0 && v <= 1 {
			out.AddThrottling(l["namespace"], l["pod"], l["container"], from, v)
		}
	case v > 0 && v <= maxAmount:
		out.AddLimit(l["namespace"], l["pod"], l["container"], metrics.UsageKind(l["resource"]), from, to, v)
	}
}

// largestLimits returns the query of the largest limits within a window, and of the share of throttled periods. It reads the values at some
// times, which are few enough for a day of all containers.
func (x expressions) largestLimits(window time.Duration, matchers []Matcher) string {
	times := fmt.Sprintf("[%s:%s]", promDuration(window), promDuration(min(limitsStep, max(window/2, time.Second))))
	sel := x.selector("", append([]Matcher{OneOf("__name__", []string{limitsMetric, initLimitsMetric}), cpuOrMemory()}, matchers...)...)
	increase := func(metric string) string {
		return fmt.Sprintf("increase(%s%s)", x.containers(metric, matchers...), times)
	}

	return fmt.Sprintf(`max by (%s, resource) (max_over_time(%s%s)) or label_replace(max by (%s) (clamp_max(%s / (%s > 0), 1)), "resource", %q, "", "")`,
		byContainer, sel, times, byContainer, increase(throttledMetric), increase(periodsMetric), throttledResource)
}

func cpuOrMemory() Matcher { return Matcher{Label: "resource", Op: "=~", Value: "cpu|memory"} }

// nodes reads the capacities of all nodes of the window, or their allocatable amounts.
func (c *capacityReader) nodes(ctx context.Context, out *metrics.Capacities, start, end time.Time) error {
	largest := func(metric string) string {
		return fmt.Sprintf("max by (node, resource) (max_over_time(%s[%s:%s]))",
			c.expr.selector(metric, cpuOrMemory()), promDuration(end.Sub(start)), promDuration(min(nodesStep, max(end.Sub(start)/2, time.Minute))))
	}

	list, err := c.Instant(ctx, largest(capacityMetric)+" or "+largest(allocatableMetric), end)
	for _, sample := range list {
		if sample.Value > 0 && sample.Value <= maxAmount {
			out.AddNode(sample.Labels["node"], metrics.UsageKind(sample.Labels["resource"]), sample.Value)
		}
	}

	return err
}
