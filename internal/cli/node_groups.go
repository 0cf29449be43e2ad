// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// jsonNodeGroup is the recommendation for the pods of a DaemonSet on one node group.
type jsonNodeGroup struct {
	// Group identifies the nodes by label=value or by capacity; Pods is the number of pods observed there on the last
	// day.
	Group string `json:"group"`
	Pods  int    `json:"pods"`
	// CPU and Memory are absent if the source does not measure them.
	CPU    *jsonGroupSize `json:"cpu,omitempty"`
	Memory *jsonGroupSize `json:"memory,omitempty"`
	// Saving is the saving of the pods of the group with the recommended size, at the prices of its nodes; absent without prices.
	Saving *jsonSaving `json:"saving,omitempty"`
}

// jsonGroupSize is the recommendation for a DaemonSet restricted to the node group.
type jsonGroupSize struct {
	Status      string       `json:"status"`
	Message     string       `json:"message"`
	Recommended *jsonAmounts `json:"recommended,omitempty"`
}

// newJSONNodeGroups returns the node groups, none if all nodes are alike.
func newJSONNodeGroups(groups []rightsize.NodeGroupSize) []jsonNodeGroup {
	var out []jsonNodeGroup
	for _, g := range groups {
		out = append(out, jsonNodeGroup{
			Group:  g.Group,
			Pods:   g.Pods,
			CPU:    newJSONGroupSize(g.CPU, amounts(g.Target.CPURequest, g.Target.CPULimit, units.FormatCPU, 1000)),
			Memory: newJSONGroupSize(g.Memory, amounts(g.Target.MemoryRequest, g.Target.MemoryLimit, units.FormatMemory, 1)),
		})
	}

	return out
}

func newJSONGroupSize(s rightsize.Sizing, target jsonAmounts) *jsonGroupSize {
	out := &jsonGroupSize{Status: string(s.Status), Message: s.Message}
	if s.Status == rightsize.Ready {
		out.Recommended = &target
	}

	return out
}

// nodeGroupLines returns one line of text per node group of the i-th container, with the recommendation for a resource and its saving.
func (r *report) nodeGroupLines(it sizereport.Item, i int, resource metrics.UsageKind) []string {
	var out []string
	for n, g := range it.Plan.Containers[i].NodeGroups {
		sizing := g.Memory
		s := resourceSize{resource: resource, target: floatValue(g.Target.MemoryRequest, 1)}
		if resource == metrics.CPU {
			sizing = g.CPU
			s.target = floatValue(g.Target.CPURequest, 1000)
		}

		// Without a recommendation, the message says why.
		text := sizing.Message
		if sizing.Status == rightsize.Ready {
			text = s.format(s.target)
			if len(it.GroupSavings) > 0 && it.GroupSavings[i][n].Counted > 0 {
				saving := it.GroupSavings[i][n].Hourly.Memory
				if resource == metrics.CPU {
					saving = it.GroupSavings[i][n].Hourly.CPU
				}

				text += ", " + r.moneyText(saving)
			}
		}

		out = append(out, fmt.Sprintf("%s (%s): %s", g.Group, units.FormatCount(g.Pods, "pod"), text))
	}

	return out
}
