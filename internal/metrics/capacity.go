// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"
)

const (
	// limitTolerance is the factor by which a rate may exceed a limit: it is extrapolated to its window.
	limitTolerance = 1.1
	// NodeTolerance is the factor by which a rate may exceed a node.
	NodeTolerance = 1.01
	// unenforcedShare is the share of the samples of a day above a limit from which the limit is not enforced.
	unenforcedShare = 0.05
)

// CapacityReader reads what nodes and limits could give to containers at times of the past.
type CapacityReader interface {
	// Capacities returns the limits of the containers in some namespaces in the window, and the nodes that there were. Empty namespaces mean
	// all.
	Capacities(ctx context.Context, w Window, namespaces []string) (*Capacities, error)
}

// Amounts are amounts of CPU, in cores, and memory, in bytes; 0 where unknown.
type Amounts struct{ CPU, Memory float64 }

func (a Amounts) amount(resource UsageKind) float64 {
	if resource == CPU {
		return a.CPU
	}

	return a.Memory
}

// Raise raises an amount to at least a value.
func (a *Amounts) Raise(resource UsageKind, v float64) {
	switch resource {
	case CPU:
		a.CPU = max(a.CPU, v)
	case Memory:
		a.Memory = max(a.Memory, v)
	}
}

// Capacities are what nodes and limits could give. A nil pointer knows nothing.
type Capacities struct {
	// Nodes are the capacities of nodes by name, Largest the largest of them.
	Nodes   map[string]Amounts
	Largest Amounts
	limits  map[limitedContainer][]limitSpan
	// throttling is the share of throttled periods by container and day.
	throttling map[limitedContainer]map[time.Time]float64
}

type limitedContainer struct{ namespace, pod, container string }

// limitSpan is the largest limits within (from, to].
type limitSpan struct {
	from, to time.Time
	limits   Amounts
}

// NewCapacities returns capacities without nodes and limits.
func NewCapacities() *Capacities {
	return &Capacities{
		Nodes:      map[string]Amounts{},
		limits:     map[limitedContainer][]limitSpan{},
		throttling: map[limitedContainer]map[time.Time]float64{},
	}
}

// AddThrottling adds the share of the CFS periods of a day in which the kernel throttled a container, from 0 to 1.
func (c *Capacities) AddThrottling(namespace, pod, container string, day time.Time, share float64) {
	key := limitedContainer{namespace, pod, container}
	if c.throttling[key] == nil {
		c.throttling[key] = map[time.Time]float64{}
	}

	day = day.UTC().Truncate(24 * time.Hour)
	c.throttling[key][day] = max(c.throttling[key][day], share)
}

// Throttling returns the share of the CFS periods of the day of a time in which the kernel throttled a container; ok is false where it was not
// counted.
func (c *Capacities) Throttling(key ContainerKey, at time.Time) (share float64, ok bool) {
	if c == nil {
		return 0, false
	}

	share, ok = c.throttling[limitedContainer{key.Workload.Namespace, key.Pod, key.Container}][at.UTC().Truncate(24*time.Hour)]
	return share, ok
}

// AddLimit adds the largest limit of a container within a time.
func (c *Capacities) AddLimit(namespace, pod, container string, resource UsageKind, from, to time.Time, v float64) {
	key := limitedContainer{namespace, pod, container}
	spans := c.limits[key]
	for i := range spans {
		if spans[i].from.Equal(from) && spans[i].to.Equal(to) {
			spans[i].limits.Raise(resource, v)
			return
		}
	}

	span := limitSpan{from: from, to: to}
	span.limits.Raise(resource, v)
	c.limits[key] = append(spans, span)
}

// AddNode adds the capacity of a node.
func (c *Capacities) AddNode(name string, resource UsageKind, v float64) {
	node := c.Nodes[name]
	node.Raise(resource, v)
	c.Nodes[name] = node
	c.Largest.Raise(resource, v)
}

// NamespacesWithLimits returns the namespaces in which the limit of any container is known: one without has none there.
func (c *Capacities) NamespacesWithLimits() map[string]bool {
	out := map[string]bool{}
	for key := range c.limits {
		out[key.namespace] = true
	}

	return out
}

// Limit returns the largest limit of a container on the day of a time; 0 if it had none or it is unknown.
func (c *Capacities) Limit(key ContainerKey, resource UsageKind, at time.Time) float64 {
	if c == nil {
		return 0
	}

	from := at.UTC().Truncate(24 * time.Hour)
	to := from.Add(24 * time.Hour)
	largest := 0.0
	for _, s := range c.limits[limitedContainer{key.Workload.Namespace, key.Pod, key.Container}] {
		if s.from.Before(to) && s.to.After(from) {
			largest = max(largest, s.limits.amount(resource))
		}
	}

	return largest
}

// Bound returns the value above which a sample of a chunk cannot be a measurement; 0 if that is unknown. A limit that more than a few samples
// exceed is not enforced, as by a kubelet without CFS quotas, so that the node counts.
func (c *Capacities) Bound(chunk Chunk, resource UsageKind) float64 {
	most := c.Most(chunk.Key, resource, chunk.Series.Start)
	above := 0
	known := 0
	for _, v := range chunk.Series.Values {
		if v >= 0 {
			known++
		}
		if v > most {
			above++
		}
	}

	if most > 0 && float64(above) > unenforcedShare*float64(known) && above > 1 {
		return c.node(chunk.Key, resource)
	}

	return most
}

// node returns what the node of a container has, or any node where its own is unknown.
func (c *Capacities) node(key ContainerKey, resource UsageKind) float64 {
	most := c.Nodes[key.Node].amount(resource)
	if most == 0 {
		most = c.Largest.amount(resource)
	}

	return most * NodeTolerance
}

// Most returns what a container could use at most on the day of a time: what its node has, or any node where its own is unknown, and its
// limit with a tolerance; 0 if both are unknown.
func (c *Capacities) Most(key ContainerKey, resource UsageKind, at time.Time) float64 {
	if c == nil {
		return 0
	}

	most := c.node(key, resource)
	if limit := limitTolerance * c.Limit(key, resource, at); limit > 0 && (most == 0 || limit < most) {
		return limit
	}

	return most
}
