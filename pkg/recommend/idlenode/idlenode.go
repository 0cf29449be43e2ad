// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package idlenode finds nodes that could be removed: those that run only DaemonSet and static pods, and those with so
// little usage that their pods fit on other nodes. Reading pods and usage does not belong here.
package idlenode

import (
	"fmt"
	"slices"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/packing"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// Reasons of plans.
const (
	// ReasonOnlyDaemonPods means that a node has run only DaemonSet and static pods.
	ReasonOnlyDaemonPods = "OnlyDaemonPods"
	// ReasonLowUse means that the pods of a node use or request little and fit on other nodes.
	ReasonLowUse = "LowUse"
)

// Input describes one node.
type Input struct {
	// Ready is the Ready condition of the node; ControlPlane is set if it runs the control plane.
	Ready, ControlPlane bool
	Capacity            cost.Amounts
	// Pods are the pods on the node that have not ended.
	Pods []Pod
	// OtherNodes are the nodes to which Pod.Demand.Allowed refers; the node itself has no capacity there.
	OtherNodes []packing.Node
	// OtherPods is the number of pods that are neither of a DaemonSet nor static.
	OtherPods observation.Hours
	// CPUUse and CPURequest are in cores, MemoryUse and MemoryRequest in bytes.
	CPUUse, MemoryUse, CPURequest, MemoryRequest observation.Hours
}

// Pod is a pod on the node.
type Pod struct {
	packing.Demand
	// OnEveryNode marks DaemonSet and static pods, which exist on every node.
	OnEveryNode bool
	// Unmanaged marks pods that no controller would replace.
	Unmanaged bool
}

// Decide returns whether the node is idle. Nodes without data are not.
func Decide(in Input, s Settings) recommend.Plan {
	switch {
	case in.ControlPlane:
		return recommend.ClearPlan("It carries the control plane.")
	case !in.Ready:
		return recommend.ClearPlan("It is not ready, and so out of order rather than idle.")
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

	// A node is removed only if each of its pods can run elsewhere.
	for _, p := range others {
		switch {
		case p.Unmanaged:
			return recommend.ClearPlan(fmt.Sprintf("It is hardly used, but no controller would replace pod %s.", p.Name))
		case p.Requests.GPU > 0:
			return recommend.ClearPlan(fmt.Sprintf("Pod %s has a GPU of it, of whose use CPU and memory say nothing.", p.Name))
		}
	}

	if unplaced := packing.Unplaced(in.Demands(), in.OtherNodes); len(unplaced) > 0 {
		return recommend.ClearPlan(fmt.Sprintf("It is hardly used, but there is no room elsewhere for %s.", units.FormatFirst(unplaced, 3)))
	}

	if len(others) > 0 {
		plan.Description += fmt.Sprintf(" Its pods that do not run on every node (%d) have room on the others, by their requests, selectors and tolerations; "+
			"affinity between pods and the location of their volumes were not checked.", len(others))
	}

	return plan
}

// checkEmpty decides about a node that runs only DaemonSet and static pods now; ended is false if it ran other pods
// recently, so that the thresholds decide.
func checkEmpty(in Input, s Settings) (plan recommend.Plan, ended bool) {
	need := observation.DefaultRequirement(s.EmptyHours)
	if state, why := need.Check("number of its pods", in.OtherPods); state != recommend.Ready {
		return recommend.Plan{State: state, Description: "It runs only pods that run on every node now. " + why}, true
	}

	largest := need.Quantile(in.OtherPods, 1)
	if largest > 0 {
		return recommend.Plan{}, false
	}

	limit := 0.0
	return recommend.Plan{
		State:       recommend.Ready,
		Action:      recommend.Delete,
		Reason:      ReasonOnlyDaemonPods,
		Description: fmt.Sprintf("For %s it has run nothing but pods of DaemonSets and static pods (%d now).", units.FormatHours(s.EmptyHours), len(in.Pods)),
		Evidence: []recommend.Evidence{
			{Name: "most pods that do not run on every node, over " + units.FormatHours(s.EmptyHours), Value: largest, Limit: &limit},
		},
	}, true
}

// checkUse compares usage and requests with the thresholds. One exceeded threshold is sufficient, whatever is unknown about
// the others.
func checkUse(in Input, s Settings) recommend.Plan {
	need := observation.DefaultRequirement(s.Hours)
	plan := recommend.Plan{State: recommend.Ready, Action: recommend.Delete, Reason: ReasonLowUse}
	compared := 0

	var missing *recommend.Plan
	for _, c := range []struct {
		what              string
		hours             observation.Hours
		capacity          float64
		percentile, limit units.Ratio
	}{
		{"cpu use", in.CPUUse, float64(in.Capacity.CPU) / 1000, s.CPUPercentile, s.CPUUse},
		{"memory use", in.MemoryUse, float64(in.Capacity.Memory), s.MemoryPercentile, s.MemoryUse},
		{"requested cpu", in.CPURequest, float64(in.Capacity.CPU) / 1000, s.CPUPercentile, s.CPURequest},
		{"requested memory", in.MemoryRequest, float64(in.Capacity.Memory), s.MemoryPercentile, s.MemoryRequest},
	} {
		if c.limit <= 0 {
			continue
		}

		compared++
		if !(c.capacity > 0) {
			missing = &recommend.Plan{State: recommend.NoData, Description: "Its capacity is not known."}
			continue
		}

		// An exceeded limit decides, even if another quantity is unknown.
		share := need.Quantile(c.hours, c.percentile) / c.capacity
		if share > float64(c.limit) {
			return recommend.ClearPlan(fmt.Sprintf("Its %s reaches %.3g %% of what it has.", c.what, 100*share))
		}

		if state, why := need.Check(c.what, c.hours); state != recommend.Ready {
			missing = &recommend.Plan{State: state, Description: why}
			continue
		}

		limit := 100 * float64(c.limit)
		plan.Evidence = append(plan.Evidence, recommend.Evidence{
			Name:  fmt.Sprintf("%s of %s over %s", units.FormatPercentile(c.percentile), c.what, units.FormatHours(s.Hours)),
			Value: 100 * share,
			Unit:  "% of capacity",
			Limit: &limit,
		})
	}

	switch {
	case missing != nil:
		return *missing
	case compared == 0:
		return recommend.ClearPlan("It runs pods of its own, and no threshold is set.")
	}

	plan.Description = fmt.Sprintf("It has hardly been used for %s.", units.FormatHours(s.Hours))
	return plan
}

// Demands returns the pods that would need capacity on other nodes.
func (in Input) Demands() []packing.Demand {
	var out []packing.Demand
	for _, p := range in.Pods {
		if !p.OnEveryNode {
			out = append(out, p.Demand)
		}
	}

	return out
}

// Settings define when a node counts as idle.
type Settings struct {
	// CPUUse, MemoryUse, CPURequest and MemoryRequest are the shares of the capacity up to which a node is idle; 0 disables
	// a share. All others must hold.
	CPUUse, MemoryUse, CPURequest, MemoryRequest units.Ratio
	// CPUPercentile and MemoryPercentile select the hour of the window that is compared with them.
	CPUPercentile, MemoryPercentile units.Ratio
	// Hours is the length of the window, EmptyHours the time for which a node must have had only pods that run on every
	// node.
	Hours, EmptyHours int
}

// ParseSettings parses gocrane's keys, with its defaults of the percentiles, and two of Crane's own:
//
//	cpu-usage-utilization, memory-usage-utilization, cpu-request-utilization, memory-request-utilization   0 (disabled)
//	cpu-percentile 0.99, memory-percentile 0.99
//	history-length 168h, empty-for 24h
//
// If none of the four shares is set, the limits are 0.1 for CPU usage and 0.25 for memory usage: gocrane then found only
// nodes without workloads.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	cpu := units.Ratio(0.1)
	memory := units.Ratio(0.25)
	for _, key := range []string{"cpu-usage-utilization", "memory-usage-utilization", "cpu-request-utilization", "memory-request-utilization"} {
		if r.Has(key) {
			cpu = 0
			memory = 0
		}
	}

	s := Settings{
		CPUUse:           r.Share("cpu-usage-utilization", cpu),
		MemoryUse:        r.Share("memory-usage-utilization", memory),
		CPURequest:       r.Share("cpu-request-utilization", 0),
		MemoryRequest:    r.Share("memory-request-utilization", 0),
		CPUPercentile:    r.Share("cpu-percentile", 0.99),
		MemoryPercentile: r.Share("memory-percentile", 0.99),
		Hours:            r.Hours("history-length", 168, 1, 90*24),
		EmptyHours:       r.Hours("empty-for", 24, 1, 90*24),
	}

	return s, r.Err()
}
