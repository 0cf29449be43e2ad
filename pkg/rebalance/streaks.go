// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalance

import (
	"time"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Heat is the resource by which a node is hot.
type Heat struct {
	Resource units.Resource
	// Load is the newest reading, Evict the mark that it is above.
	Load, Evict units.Ratio
	// Rounds is the number of consecutive readings above the mark.
	Rounds int
}

// Streaks counts for each node the consecutive readings above the mark evict. Only a new reading counts. A reading
// that is not fresh ends a streak, because pods are not evicted for an unknown load.
//
// It is not safe for concurrent use.
type Streaks struct {
	nodes map[streakKey]streak
}

type streakKey struct {
	node     string
	resource units.Resource
}

type streak struct {
	last   time.Time
	rounds int
}

// Look adds the newest readings of a node, in the order of the policy's metrics, and returns where it is hot, the
// resource farthest above its mark first. A node without a reading above a mark is not hot.
func (s *Streaks) Look(name string, policy *nodeload.Policy, samples []nodeload.Sample, now time.Time) []Heat {
	if s.nodes == nil {
		s.nodes = map[streakKey]streak{}
	}

	var out []Heat
	for _, resource := range []units.Resource{units.CPU, units.Memory} {
		key := streakKey{name, resource}
		marks, marked := policy.Marks[resource]

		gauge, measured := policy.Gauge(resource)
		if !marked || !measured {
			delete(s.nodes, key)
			continue
		}

		load := samples[gauge]
		if load.StateAt(now, policy.Metrics[gauge].Active()) != nodeload.Fresh || load.Value <= marks.Evict {
			delete(s.nodes, key)
			continue
		}

		// A reading that was seen before does not count again.
		current := s.nodes[key]
		if load.Time.After(current.last) {
			current.last = load.Time
			current.rounds++
			s.nodes[key] = current
		}

		heat := Heat{
			Resource: resource,
			Load:     load.Value,
			Evict:    marks.Evict,
			Rounds:   current.rounds,
		}

		if len(out) > 0 && heat.Load-heat.Evict > out[0].Load-out[0].Evict {
			out = append([]Heat{heat}, out...)
		} else {
			out = append(out, heat)
		}
	}

	return out
}

// Keep drops the nodes for which exists returns false.
func (s *Streaks) Keep(exists func(node string) bool) {
	for key := range s.nodes {
		if !exists(key.node) {
			delete(s.nodes, key)
		}
	}
}
