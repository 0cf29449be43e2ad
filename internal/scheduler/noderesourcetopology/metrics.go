// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import "k8s.io/component-base/metrics"

// collectors are the plugin's metrics. They have no effect until they are registered.
type collectors struct {
	unknown         *metrics.CounterVec
	available       *metrics.Gauge
	nodes           *metrics.Gauge
	invalidTopology *metrics.Counter
	invalidResult   *metrics.Counter
}

func newCollectors() *collectors {
	const subsystem = "crane_scheduler_topology"

	return &collectors{
		unknown: metrics.NewCounterVec(&metrics.CounterOpts{
			Subsystem:      subsystem,
			Name:           "unknown_total",
			StabilityLevel: metrics.ALPHA,
			Help:           "Number of times that a pod with whole CPUs met a node with unknown NUMA zones, by reason and by the decision about the node.",
		}, []string{"reason", "result"}),
		available: metrics.NewGauge(&metrics.GaugeOpts{
			Subsystem:      subsystem,
			Name:           "available",
			StabilityLevel: metrics.ALPHA,
			Help:           "1 where NodeResourceTopologies can be read, 0 where their CustomResourceDefinition is missing or access is refused.",
		}),
		nodes: metrics.NewGauge(&metrics.GaugeOpts{
			Subsystem:      subsystem,
			Name:           "nodes",
			StabilityLevel: metrics.ALPHA,
			Help:           "Nodes of which a NodeResourceTopology is known.",
		}),
		invalidTopology: metrics.NewCounter(&metrics.CounterOpts{
			Subsystem:      subsystem,
			Name:           "invalid_total",
			StabilityLevel: metrics.ALPHA,
			Help:           "NodeResourceTopologies that cannot be; their nodes count as unknown.",
		}),
		invalidResult: metrics.NewCounter(&metrics.CounterOpts{
			Subsystem:      subsystem,
			Name:           "invalid_results_total",
			StabilityLevel: metrics.ALPHA,
			Help:           "Annotations topology.crane.io/topology-result that were not understood.",
		}),
	}
}

func (c *collectors) all() []metrics.Registerable {
	return []metrics.Registerable{c.unknown, c.available, c.nodes, c.invalidTopology, c.invalidResult}
}
