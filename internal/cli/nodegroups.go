// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
)

// jsonNodeGroup is what the pods of a DaemonSet need on the nodes of one group.
type jsonNodeGroup struct {
	// Group names the nodes, as label=value, or by their capacity; Pods is how many pods were seen there on the last day.
	Group string `json:"group"`
	Pods  int    `json:"pods"`
	// CPU and Memory are absent where the source cannot know them.
	CPU    *jsonGroupSize `json:"cpu,omitempty"`
	Memory *jsonGroupSize `json:"memory,omitempty"`
}

// jsonGroupSize is what a DaemonSet of the group's own should ask for.
type jsonGroupSize struct {
	Status      string       `json:"status"`
	Message     string       `json:"message"`
	Recommended *jsonAmounts `json:"recommended,omitempty"`
}

// nodeGroupsJSON is empty where all nodes are alike.
func nodeGroupsJSON(groups []rightsize.NodeGroupSize) []jsonNodeGroup {
	var out []jsonNodeGroup
	for _, g := range groups {
		out = append(out, jsonNodeGroup{
			Group: g.Group, Pods: g.Pods,
			CPU:    groupSizeJSON(g.CPU, amounts(g.Target.CPURequest, g.Target.CPULimit, rightsize.FormatCPU, 1000)),
			Memory: groupSizeJSON(g.Memory, amounts(g.Target.MemoryRequest, g.Target.MemoryLimit, rightsize.FormatMemory, 1)),
		})
	}
	return out
}

func groupSizeJSON(s rightsize.Sizing, target jsonAmounts) *jsonGroupSize {
	out := &jsonGroupSize{Status: string(s.Status), Message: s.Message}
	if s.Status == rightsize.Ready {
		out.Recommended = &target
	}
	return out
}

// nodeGroupLines say what each group of nodes needs of a resource, for people.
func nodeGroupLines(c rightsize.Recommendation, of metrics.Resource) []string {
	var out []string
	for _, g := range c.NodeGroups {
		sizing, s := g.Memory, size{resource: of, target: plain(g.Target.MemoryRequest, 1)}
		if of == metrics.CPU {
			sizing, s.target = g.CPU, plain(g.Target.CPURequest, 1000)
		}
		text := sizing.Message
		if sizing.Status == rightsize.Ready {
			text = s.format(s.target)
		}
		out = append(out, fmt.Sprintf("%s (%s): %s", g.Group, plural(g.Pods, "pod"), text))
	}
	return out
}
