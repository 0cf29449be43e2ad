// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package idlenode finds nodes that could go: those that have run nothing but what runs on every node, and those that are
// used so little that their pods fit on the others. It must not know where pods and their use are read.
package idlenode

import (
	"fmt"
	"slices"
	"strings"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/packing"
	"crane.io/crane/pkg/series"
)

// Reasons of plans.
const (
	// ReasonOnlyDaemonPods is a node that has run nothing but pods of DaemonSets and static ones.
	ReasonOnlyDaemonPods = "OnlyDaemonPods"
	// ReasonLowUse is a node whose pods use, or ask for, little and fit elsewhere.
	ReasonLowUse = "LowUse"
)

// Input is what is known of one node.
type Input struct {
	// Ready tells that the kubelet says so; ControlPlane that the node carries the cluster's own.
	Ready, ControlPlane bool
	Capacity            cost.Amounts
	// Pods are those on the node that have not ended.
	Pods []Pod
	// OtherNodes are the other nodes that take pods; Pod.Demand.Allowed is about them.
	OtherNodes []packing.Node
	// OtherPods is the number of pods that are neither of a DaemonSet nor static.
	OtherPods observation.Hours
	// CPUUse and CPURequest are cores, MemoryUse and MemoryRequest bytes.
	CPUUse, MemoryUse, CPURequest, MemoryRequest observation.Hours
}

// Pod is a pod on the node.
type Pod struct {
	packing.Demand
	// OnEveryNode marks pods of DaemonSets, and static pods: they come and go with the node.
	OnEveryNode bool
	// Unmanaged marks pods that nothing would start again elsewhere.
	Unmanaged bool
}

// Decide says whether the node is idle. It never is for want of data.
func Decide(in Input, s Settings) recommend.Plan {
	switch {
	case in.ControlPlane:
		return clearOf("It carries the control plane.")
	case !in.Ready:
		return clearOf("It is not ready, and so out of order rather than idle.")
	}
	others := slices.DeleteFunc(slices.Clone(in.Pods), func(p Pod) bool { return p.OnEveryNode })
	if len(others) == 0 {
		if plan, ended := checkEmpty(in, s); ended {
			return plan
		}
	}
	plan := checkUse(in, s)
	if plan.State != recommend.Ready {
		return plan
	}
	for _, p := range others {
		switch {
		case p.Unmanaged:
			return clearOf(fmt.Sprintf("It is hardly used, but nothing would start pod %s elsewhere.", p.Name))
		case p.Requests.GPU > 0:
			return clearOf(fmt.Sprintf("Pod %s has a GPU of it, of whose use CPU and memory say nothing.", p.Name))
		}
	}
	if left := packing.Unplaced(in.Demands(), in.OtherNodes); len(left) > 0 {
		return clearOf(fmt.Sprintf("It is hardly used, but there is no room elsewhere for %s.", formatFirst(left)))
	}
	if len(others) > 0 {
		plan.Description += fmt.Sprintf(" Its pods that do not run on every node (%d) have room on the others, by their requests, selectors and tolerations; "+
			"affinity between pods and the places of their volumes were not looked at.", len(others))
	}
	return plan
}

// checkEmpty decides on a node that runs nothing of its own now. It leaves to the thresholds what ran something of late.
func checkEmpty(in Input, s Settings) (plan recommend.Plan, ended bool) {
	need := observation.DefaultRequirement(s.EmptyHours)
	if state, why := need.Check("number of its pods", in.OtherPods); state != recommend.Ready {
		return recommend.Plan{State: state, Description: "It runs only pods that run on every node now. " + why}, true
	}
	most := need.Quantile(in.OtherPods, 1)
	if most > 0 {
		return recommend.Plan{}, false
	}
	limit := 0.0
	return recommend.Plan{
		State: recommend.Ready, Action: recommend.Delete, Reason: ReasonOnlyDaemonPods,
		Description: fmt.Sprintf("For %s it has run nothing but pods of DaemonSets and static pods (%d now).", hours(s.EmptyHours), len(in.Pods)),
		Evidence: []recommend.Evidence{
			{Name: "most pods that do not run on every node, over " + hours(s.EmptyHours), Value: most, Limit: &limit},
		},
	}, true
}

// checkUse holds use and requests against the thresholds. One that does not hold is enough to call a node not idle, whatever is
// missing of the others.
func checkUse(in Input, s Settings) recommend.Plan {
	need := observation.DefaultRequirement(s.Hours)
	plan := recommend.Plan{State: recommend.Ready, Action: recommend.Delete, Reason: ReasonLowUse}
	var missing *recommend.Plan
	looked := 0
	for _, c := range []struct {
		what      string
		of        observation.Hours
		capacity  float64
		at, limit series.Ratio
	}{
		{"cpu use", in.CPUUse, float64(in.Capacity.CPU) / 1000, s.CPUPercentile, s.CPUUse},
		{"memory use", in.MemoryUse, float64(in.Capacity.Memory), s.MemoryPercentile, s.MemoryUse},
		{"requested cpu", in.CPURequest, float64(in.Capacity.CPU) / 1000, s.CPUPercentile, s.CPURequest},
		{"requested memory", in.MemoryRequest, float64(in.Capacity.Memory), s.MemoryPercentile, s.MemoryRequest},
	} {
		if c.limit <= 0 {
			continue
		}
		looked++
		if !(c.capacity > 0) {
			missing = &recommend.Plan{State: recommend.NoData, Description: "Its capacity is not known."}
			continue
		}
		share := need.Quantile(c.of, c.at) / c.capacity
		if share > float64(c.limit) {
			return clearOf(fmt.Sprintf("Its %s reaches %.3g %% of what it has.", c.what, 100*share))
		}
		if state, why := need.Check(c.what, c.of); state != recommend.Ready {
			missing = &recommend.Plan{State: state, Description: why}
			continue
		}
		limit := 100 * float64(c.limit)
		plan.Evidence = append(plan.Evidence, recommend.Evidence{
			Name: fmt.Sprintf("%s of %s over %s", observation.FormatPercentile(c.at), c.what, hours(s.Hours)), Value: 100 * share, Unit: "% of capacity", Limit: &limit,
		})
	}
	switch {
	case missing != nil:
		return *missing
	case looked == 0:
		return clearOf("It runs pods of its own, and no threshold is set.")
	}
	plan.Description = fmt.Sprintf("It has hardly been used for %s.", hours(s.Hours))
	return plan
}

func clearOf(why string) recommend.Plan {
	return recommend.Plan{State: recommend.Clear, Description: why}
}

// Demands are the pods that would need room elsewhere.
func (in Input) Demands() []packing.Demand {
	var out []packing.Demand
	for _, p := range in.Pods {
		if !p.OnEveryNode {
			out = append(out, p.Demand)
		}
	}
	return out
}

// formatFirst names the first few.
func formatFirst(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func hours(n int) string { return observation.FormatHours(n) }
