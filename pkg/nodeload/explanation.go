// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/series"
)

// Explanation says why an attempt to place a pod saw each node as it did.
type Explanation struct {
	// Pod is namespace/name.
	Pod     string    `json:"pod"`
	Profile string    `json:"profile"`
	Attempt uint64    `json:"attempt"`
	Time    time.Time `json:"time"`
	// Outcome is what became of the attempt, in words; Node is where the pod went.
	Outcome string `json:"outcome"`
	Node    string `json:"node,omitempty"`
	// CPU and Memory are what the pod is expected to use, in thousandths of a core and bytes; Basis says from what that is
	// estimated.
	CPU    series.MilliCPU `json:"cpuMilli"`
	Memory series.Bytes    `json:"memoryBytes"`
	Basis  string          `json:"basis"`
	// Exempt tells that load is no reason to keep the pod off a node, Abstains that too few nodes say how loaded they are.
	Exempt   bool         `json:"exempt,omitempty"`
	Abstains bool         `json:"abstains,omitempty"`
	Strategy StrategyName `json:"strategy"`
	// Fresh, Stale and Absent count nodes by the state of what they report.
	Fresh  int `json:"freshNodes"`
	Stale  int `json:"staleNodes"`
	Absent int `json:"absentNodes"`
	// LeftOut are metrics of the policy that too few nodes report.
	LeftOut []string `json:"leftOutMetrics,omitempty"`
	// NotAsked is the number of nodes that the plugin was not asked about: another plugin had closed them, or enough were
	// found without them.
	NotAsked int `json:"notAskedNodes"`
	// Nodes that the plugin was asked about, the best first.
	Nodes []NodeExplanation `json:"nodes"`
}

// Verdict is what became of a node.
type Verdict string

// The verdicts.
const (
	Closed Verdict = "Closed" // by a limit
	Passed Verdict = "Passed" // not scored: by other plugins, or because it was the only one left
	Scored Verdict = "Scored"
)

// NodeExplanation says why one node was filtered or scored as it was. Ratios are fractions of the node's capacity: of the
// metric that closed it, or by the weights of all metrics.
type NodeExplanation struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Score from 0 to 100, of a node that was scored.
	Score *int64 `json:"score,omitempty"`
	// Cost is what the score was made from.
	Cost     Cost         `json:"cost,omitempty"`
	Load     series.Ratio `json:"load"`
	OnWay    series.Ratio `json:"onWay"`
	Incoming series.Ratio `json:"incoming"`
	// Metric and Limit closed the node; Mark tells that the limit is the water mark.
	Metric string       `json:"metric,omitempty"`
	Limit  series.Ratio `json:"limit,omitempty"`
	Mark   bool         `json:"waterMark,omitempty"`
	// Unknown tells that a metric was not fresh: it closed nothing, and counted as the mean of the nodes.
	Unknown bool `json:"unknown,omitempty"`
}

// Reason is the explanation in one sentence.
func (n *NodeExplanation) Reason() string {
	parts := fmt.Sprintf("load %s + on its way %s + this pod %s", percent(n.Load), percent(n.OnWay), percent(n.Incoming))
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
		return fmt.Sprintf("%s: %s is above the %s of %s", n.Metric, parts, limit, percent(n.Limit))
	case Scored:
		return parts + unknown
	case Passed:
	}
	return "below every limit" + unknown
}

func percent(r series.Ratio) string { return fmt.Sprintf("%.1f%%", 100*float64(r)) }
