// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Explanation records how each node was filtered and scored in an attempt to place a pod.
type Explanation struct {
	// Pod is namespace/name.
	Pod     string    `json:"pod"`
	Profile string    `json:"profile"`
	Attempt uint64    `json:"attempt"`
	Time    time.Time `json:"time"`
	// Outcome is the result of the attempt, in words; Node is the selected node.
	Outcome string `json:"outcome"`
	Node    string `json:"node,omitempty"`
	// CPU and Memory are the expected usage of the pod; Basis is the source of the estimate.
	CPU    units.MilliCPU `json:"cpuMilli"`
	Memory units.Bytes    `json:"memoryBytes"`
	Basis  string         `json:"basis"`
	// Exempt means that load does not exclude nodes for this pod, Abstains that too few nodes report their load.
	Exempt   bool         `json:"exempt,omitempty"`
	Abstains bool         `json:"abstains,omitempty"`
	Strategy StrategyName `json:"strategy"`
	// Fresh, Stale and Absent count nodes by the state of their load.
	Fresh  int `json:"freshNodes"`
	Stale  int `json:"staleNodes"`
	Absent int `json:"absentNodes"`
	// LeftOut are the metrics of the policy that too few nodes report.
	LeftOut []string `json:"leftOutMetrics,omitempty"`
	// NotAsked is the number of nodes that the plugin did not evaluate: excluded by another plugin, or not needed
	// because enough nodes were found.
	NotAsked int `json:"notAskedNodes"`
	// Nodes are the evaluated nodes, the best first.
	Nodes []NodeExplanation `json:"nodes"`
}

// Verdict is the result for a node.
type Verdict string

// The verdicts.
const (
	Closed Verdict = "Closed" // excluded by a limit
	Passed Verdict = "Passed" // not scored: excluded by other plugins, or the only node left
	Scored Verdict = "Scored"
)

// NodeExplanation is how one node was filtered or scored. Ratios are fractions of the node's capacity: of the metric
// that excluded it, or weighted over all metrics.
type NodeExplanation struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Score is from 0 to 100, for a scored node.
	Score *int64 `json:"score,omitempty"`
	// Cost is the cost that the score was computed from.
	Cost     Cost        `json:"cost,omitempty"`
	Load     units.Ratio `json:"load"`
	OnWay    units.Ratio `json:"onWay"`
	Incoming units.Ratio `json:"incoming"`
	// Metric and Limit excluded the node; Mark means that the limit is the water mark.
	Metric string      `json:"metric,omitempty"`
	Limit  units.Ratio `json:"limit,omitempty"`
	Mark   bool        `json:"waterMark,omitempty"`
	// Unknown means that a metric was not fresh: it excluded nothing, and counted as the mean of the nodes.
	Unknown bool `json:"unknown,omitempty"`
}

// Reason returns the explanation in one sentence.
func (n *NodeExplanation) Reason() string {
	parts := fmt.Sprintf("load %s + on its way %s + this pod %s", units.FormatPercent(n.Load), units.FormatPercent(n.OnWay), units.FormatPercent(n.Incoming))
	unknown := ""
	if n.Unknown {
		unknown = "; a metric is not fresh and counts as the mean"
	}

	switch n.Verdict {
	case Closed:
		limit := "limit"
		if n.Mark {
			limit = "water mark"
		}

		return fmt.Sprintf("%s: %s is above the %s of %s", n.Metric, parts, limit, units.FormatPercent(n.Limit))

	case Scored:
		return parts + unknown
	case Passed:
	}

	return "below every limit" + unknown
}
