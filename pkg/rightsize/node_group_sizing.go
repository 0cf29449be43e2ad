// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"slices"

	"crane.io/crane/pkg/units"
)

const (
	// similarSizes is the share of the largest size that each other size must have for one size to suit all.
	similarSizes = 0.8
	// maxListed is the number of groups that a finding lists.
	maxListed = 5
)

// NodeGroupUse is the usage of a DaemonSet container on the nodes of one group.
type NodeGroupUse struct {
	NodeGroupShape
	// Profile is nil if there is no usage on these nodes.
	Profile *Profile
}

// NodeGroupSize is the size that the nodes of one group need.
type NodeGroupSize struct {
	Group string `json:"group"`
	// Pods is the number of pods on the nodes of the group on the last day, at most its number of nodes.
	Pods int `json:"pods"`
	// CPU and Memory hold the derivation of each resource, Target the recommendation for a DaemonSet of this group alone.
	CPU    Sizing    `json:"cpu"`
	Memory Sizing    `json:"memory"`
	Target Resources `json:"target"`
	// preliminary is the recommendation from a history that is shorter than the policy requires.
	preliminary Resources
	shape       NodeGroupShape
}

// recommendByNodeGroup sizes a container on several node groups. A DaemonSet has one template, so each request is the
// largest that a group, or all pods together, need; findings name the deciding group and the saving of one DaemonSet per
// group, separated by node affinity. A group that is still learning decides nothing, unless its preliminary size exceeds all
// others: then the resource is learning.
func recommendByNodeGroup(in Input, p Policy) Recommendation {
	groups := in.Groups
	in.Groups = nil
	out := Recommend(in, p)
	for _, g := range groups {
		if size, observed := groupSize(in, p, g); observed {
			out.NodeGroups = append(out.NodeGroups, size)
		}
	}

	if len(out.NodeGroups) < 2 {
		out.NodeGroups = nil
		return out
	}

	// Each resource may be decided by another group.
	cpu := groupComparison{
		unit:     Cores,
		value:    func(r Resources) float64 { return floatOf(r.CPURequest) / 1000 },
		sizing:   func(s *NodeGroupSize) Sizing { return s.CPU },
		capacity: func(s NodeGroupShape) float64 { return float64(s.PodCPU) / 1000 },
	}

	if deciding := cpu.apply(&out.CPU, out.Target, out.NodeGroups); deciding != nil {
		out.Target.CPURequest = deciding.CPURequest
		out.Target.CPULimit = deciding.CPULimit
	}

	memory := groupComparison{
		unit:     BytesUnit,
		value:    func(r Resources) float64 { return floatOf(r.MemoryRequest) },
		sizing:   func(s *NodeGroupSize) Sizing { return s.Memory },
		capacity: func(s NodeGroupShape) float64 { return float64(s.PodMemory) },
	}

	if deciding := memory.apply(&out.Memory, out.Target, out.NodeGroups); deciding != nil {
		out.Target.MemoryRequest = deciding.MemoryRequest
		out.Target.MemoryLimit = deciding.MemoryLimit
	}

	return out
}

// groupSize sizes the container as if it ran on the nodes of one group only; ran is false if it was not observed there.
func groupSize(in Input, p Policy, g NodeGroupUse) (size NodeGroupSize, observed bool) {
	in.Profile = g.Profile
	in.MaxCPU = g.PodCPU
	in.MaxMemory = g.PodMemory

	days := windowDays(g.Profile, in.Now, max(p.CPU.Window, p.Memory.Window))
	if len(days) == 0 {
		return NodeGroupSize{}, false
	}

	r := Recommend(in, p)
	size = NodeGroupSize{
		Group:       g.Name,
		Pods:        min(g.Nodes, len(days[len(days)-1].Peaks)),
		CPU:         r.CPU,
		Memory:      r.Memory,
		Target:      r.Target,
		preliminary: r.Target,
		shape:       g.NodeGroupShape,
	}

	// The preliminary size shows whether a group that is still learning could need more than all others.
	if !r.Ready() {
		p.MinHistory = 1
		size.preliminary = Recommend(in, p).Target
	}

	return size, true
}

// groupComparison finds the group that decides one resource.
type groupComparison struct {
	unit     Unit
	value    func(Resources) float64
	sizing   func(*NodeGroupSize) Sizing
	capacity func(NodeGroupShape) float64
}

// apply adjusts the sizing of all pods to the groups. It returns the new request and limit; nil if they stay.
func (g groupComparison) apply(all *Sizing, target Resources, groups []NodeGroupSize) (decided *Resources) {
	if all.Status != Ready {
		return nil
	}

	largest := g.value(target)
	deciding := -1
	for i := range groups {
		if v := g.value(groups[i].Target); g.sizing(&groups[i]).Status == Ready && v > largest {
			deciding = i
			largest = v
		}
	}

	// A group that already needs more than all others makes the size of all pods uncertain.
	for i := range groups {
		s := g.sizing(&groups[i])
		if v := g.value(groups[i].preliminary); s.Status == Learning && v > largest {
			*all = Sizing{
				Status: Learning, Days: all.Days,
				Message: fmt.Sprintf("nodes of %s: %s, and they already ask for %s, all others for %s", groups[i].Group, s.Message, g.unit.format(v), g.unit.format(largest)),
			}

			return &Resources{}
		}
	}

	if deciding >= 0 {
		*all = g.sizing(&groups[deciding])
		all.Message = "the nodes of " + groups[deciding].Group + " rule: " + all.Message
		all.Flags = slices.Clone(all.Flags)
		decided = &groups[deciding].Target
	}

	g.addFindings(all, largest, groups)
	return decided
}

// addFindings records how much one size for all nodes wastes on some of them, and on which it does not fit.
func (g groupComparison) addFindings(all *Sizing, largest float64, groups []NodeGroupSize) {
	var sizes, tooSmall []string
	smallest := largest
	saving := 0.0
	for i := range groups {
		size := &groups[i]
		if capacity := g.capacity(size.shape); capacity > 0 && largest > capacity {
			tooSmall = append(tooSmall, fmt.Sprintf("%s (%s)", size.Group, g.unit.format(capacity)))
		}

		s := g.sizing(size)
		if s.Status != Ready {
			sizes = append(sizes, size.Group+" "+s.Message)
			continue
		}

		v := g.value(size.Target)
		smallest = min(smallest, v)
		saving += float64(size.Pods) * (largest - v)
		sizes = append(sizes, fmt.Sprintf("%s needs %s (%d pods)", size.Group, g.unit.format(v), size.Pods))
	}

	if smallest < similarSizes*largest {
		all.Flags = append(all.Flags, Flag{Code: FlagDissimilarNodes, Detail: fmt.Sprintf(
			"one template serves unlike nodes with %s: %s; a DaemonSet for each group would ask for %s less in all",
			g.unit.format(largest), units.FormatFirst(sizes, maxListed), g.unit.format(saving))})
	}

	if len(tooSmall) > 0 {
		all.Flags = append(all.Flags, Flag{Code: FlagTooLarge, Detail: fmt.Sprintf("%s does not fit on the nodes of %s", g.unit.format(largest), units.FormatFirst(tooSmall, maxListed))})
	}
}
