// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package packing finds workloads of which another pod fits on no node, although the cluster as a whole has free capacity
// for it: a rollout that starts a pod before it stops one, or the loss of a node, leaves it pending, and a cluster
// autoscaler adds a node for it. If the pods use much less than they request, smaller requests solve that. Sizing containers
// belongs to package resource.
package packing

import (
	"cmp"
	"fmt"
	"slices"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
)

// Reasons of plans.
const (
	// ReasonLargerThanAnyNode means that a pod requests more than any node has, even an empty one.
	ReasonLargerThanAnyNode = "LargerThanAnyNode"
	// ReasonBlocksPacking means that a pod requests more than any node has free, while all nodes together have enough.
	ReasonBlocksPacking = "BlocksPacking"
)

// Input describes one workload.
type Input struct {
	// Pod is the request of one of its pods, as the scheduler counts it.
	Pod cost.Amounts
	// Largest is the container with the largest requests.
	Largest         string
	LargestRequests cost.Amounts
	// Replicas is the desired number of pods.
	Replicas int32
	// Nodes are all schedulable nodes, Allowed those of them that accept the pods (by index; nil for all).
	Nodes   []Node
	Allowed []bool
	// Resized is the request of a pod by its usage; nil if it is unknown, for the reason in ResizeProblem.
	Resized       *cost.Amounts
	ResizeProblem string
}

// IsBlocked reports whether another pod fits nowhere because no single node has enough capacity. Only then the usage of the
// workload is needed.
func IsBlocked(in Input) bool {
	switch reason, _ := checkFit(in); reason {
	case ReasonLargerThanAnyNode, ReasonBlocksPacking:
		return true
	}

	return false
}

// capacity is that of the nodes that accept the pod.
type capacity struct {
	nodes int
	// fit is the number of nodes with free capacity for the pod; largest is the largest free amount of one node and
	// largestAllocatable its largest allocatable amount, for each resource; sum is the free amount of all nodes.
	fit                              int
	largest, largestAllocatable, sum cost.Amounts
	// roomiest is the node with the largest free share of the pod.
	roomiest string
}

func checkFit(in Input) (reason string, r capacity) {
	in.Pod = in.Pod.Max(cost.Amounts{}) // Negative amounts request nothing.
	everFits := false
	best := -1.0
	for i, n := range in.Nodes {
		if !(Demand{Allowed: in.Allowed}).allowed(i) {
			continue
		}

		r.nodes++
		free := n.Free.Max(cost.Amounts{})
		everFits = everFits || fits(in.Pod, n.Allocatable)

		if fits(in.Pod, free) && n.FreePods > 0 {
			r.fit++
		}

		if share := freeShare(in.Pod, free); share > best {
			best = share
			r.roomiest = n.Name
		}

		r.largest = r.largest.Max(free)
		r.largestAllocatable = r.largestAllocatable.Max(n.Allocatable)
		r.sum = r.sum.Plus(free)
	}

	switch {
	case r.nodes == 0 || r.fit > 0 || in.Replicas <= 0 || in.Pod == (cost.Amounts{}):
		return "", r
	case !everFits:
		return ReasonLargerThanAnyNode, r
	case fits(in.Pod, r.sum):
		return ReasonBlocksPacking, r // Also if one node has the CPU and another one the memory.
	}

	return "", r // All nodes together have too little free: the cluster is full, regardless of the size of this pod.
}

// freeShare returns the smallest ratio of free to requested amounts, at most 1.
func freeShare(requested, free cost.Amounts) float64 {
	share := 1.0
	for _, p := range [][2]int64{{int64(requested.CPU), int64(free.CPU)}, {int64(requested.Memory), int64(free.Memory)}, {requested.GPU, free.GPU}} {
		if p[0] > 0 {
			share = min(share, float64(p[1])/float64(p[0]))
		}
	}

	return share
}

// Decide returns whether a pod of the workload is too large, and whether smaller requests would help.
func Decide(in Input) recommend.Plan {
	reason, r := checkFit(in)
	switch {
	case in.Replicas <= 0:
		return recommend.ClearPlan("It has no pods.")
	case r.nodes == 0:
		return recommend.ClearPlan("No node takes its pods, whatever they ask for.")
	case reason == "" && r.fit > 0:
		return recommend.ClearPlan(fmt.Sprintf("One more pod fits on %d of %d nodes.", r.fit, r.nodes))
	case reason == "":
		return recommend.ClearPlan("All nodes together have less free than a pod asks for: the cluster is full, whatever the size of this one.")
	}

	plan := recommend.Plan{
		State:    recommend.Ready,
		Action:   recommend.NoAction,
		Reason:   reason,
		Evidence: evidence(in, r),
	}

	plan.Description = "A pod asks for " + formatAmounts(in.Pod) + ". "
	if reason == ReasonLargerThanAnyNode {
		plan.Description += fmt.Sprintf("None of the %d nodes that take it has that much, even empty: the largest have %s.", r.nodes, formatAmounts(r.largestAllocatable))
	} else {
		plan.Description += fmt.Sprintf("One more fits on none of the %d nodes that take it, although they have %s free together; the best is %s. "+
			"A roll-out, or the loss of a node, leaves a pod pending.", r.nodes, formatAmounts(r.sum), r.roomiest)
	}

	if in.Largest != "" && in.LargestRequests != in.Pod {
		plan.Description += fmt.Sprintf(" Container %s asks for most of it: %s.", in.Largest, formatAmounts(in.LargestRequests))
	}

	// Smaller requests help only if a pod of the new size fits on some node.
	switch {
	case in.Resized == nil:
		plan.Incomplete = true
		plan.Description += " What it uses is not known well enough to say what it should ask for: " + in.ResizeProblem
	case countFits(*in.Resized, in) > 0:
		plan.Action = recommend.Patch
		plan.Description += fmt.Sprintf(" By what it uses %s would do, and that fits on %d of them.", formatAmounts(*in.Resized), countFits(*in.Resized, in))
	default:
		plan.Description += fmt.Sprintf(" By what it uses it needs %s, which does not fit either: more but smaller pods, or a larger node, would.", formatAmounts(*in.Resized))
	}

	return plan
}

// countFits returns the number of nodes with free capacity for an amount.
func countFits(requested cost.Amounts, in Input) int {
	in.Pod = requested
	_, r := checkFit(in)
	return r.fit
}

func evidence(in Input, r capacity) []recommend.Evidence {
	var out []recommend.Evidence
	add := func(what, unit string, requested, free float64) {
		if requested > 0 {
			out = append(out, recommend.Evidence{
				Name:  what + " that a pod asks for",
				Value: requested,
				Unit:  unit,
				Limit: &free,
			})
		}
	}

	add("cpu", "cores", float64(in.Pod.CPU)/1000, float64(r.largest.CPU)/1000)
	add("memory", "bytes", float64(in.Pod.Memory), float64(r.largest.Memory))
	add("GPUs", "", float64(in.Pod.GPU), float64(r.largest.GPU))

	return append(out, recommend.Evidence{Name: "nodes that take it", Value: float64(r.nodes)})
}

// formatAmounts formats amounts, such as "1.5 cores and 2 GiB".
func formatAmounts(a cost.Amounts) string {
	out := fmt.Sprintf("%.4g cores and %.4g GiB", float64(max(a.CPU, 0))/1000, float64(max(a.Memory, 0))/(1<<30))
	if a.GPU > 0 {
		out += fmt.Sprintf(" and %d GPU", a.GPU)
	}

	return out
}

// Node holds the capacity of a node.
type Node struct {
	Name string
	// Allocatable is its capacity for pods, Free the part that no pod requests; negative values count as zero.
	Allocatable, Free cost.Amounts
	// FreePods is the number of further pods that it may run.
	FreePods int
}

// Demand is a pod that needs capacity.
type Demand struct {
	Name     string
	Requests cost.Amounts
	// Allowed reports, by the index of a node, whether it accepts the pod; nil if all nodes do.
	Allowed []bool
}

func (d Demand) allowed(node int) bool {
	return d.Allowed == nil || node < len(d.Allowed) && d.Allowed[node]
}

// Unplaced returns the names of the pods that Place cannot place.
func Unplaced(pods []Demand, nodes []Node) []string {
	_, unplaced := Place(pods, nodes)
	return unplaced
}

// Place places pods into the free capacity of nodes, the largest first and each where the least capacity remains. It returns
// the nodes with their remaining capacity and the names of the pods that do not fit. It is a heuristic that may place fewer
// pods than possible, and ignores affinity between pods.
func Place(pods []Demand, nodes []Node) (after []Node, unplaced []string) {
	pods = slices.Clone(pods)
	nodes = slices.Clone(nodes)
	largest := cost.Amounts{CPU: 1, Memory: 1, GPU: 1}
	for _, n := range nodes {
		largest = largest.Max(n.Allocatable)
	}

	size := func(a cost.Amounts) float64 {
		return max(float64(a.CPU)/float64(largest.CPU), float64(a.Memory)/float64(largest.Memory), float64(a.GPU)/float64(largest.GPU))
	}

	slices.SortStableFunc(pods, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(size(b.Requests), size(a.Requests)), cmp.Compare(a.Name, b.Name))
	})

	// Best fit: the least capacity remains on the chosen node.
	for _, p := range pods {
		best := -1
		smallest := 0.0
		for i, n := range nodes {
			if !p.allowed(i) || n.FreePods < 1 || !fits(p.Requests, n.Free) {
				continue
			}

			if rest := size(subtract(n.Free, p.Requests)); best < 0 || rest < smallest {
				best = i
				smallest = rest
			}
		}

		if best < 0 {
			unplaced = append(unplaced, p.Name)
			continue
		}

		nodes[best].Free = subtract(nodes[best].Free, p.Requests)
		nodes[best].FreePods--
	}

	return nodes, unplaced
}

// fits reports whether the free amounts hold the requested ones. Resources that are not requested are ignored.
func fits(requested, free cost.Amounts) bool {
	return (requested.CPU <= 0 || requested.CPU <= free.CPU) && (requested.Memory <= 0 || requested.Memory <= free.Memory) && (requested.GPU <= 0 || requested.GPU <= free.GPU)
}

func subtract(a, b cost.Amounts) cost.Amounts {
	return cost.Amounts{CPU: a.CPU - max(b.CPU, 0), Memory: a.Memory - max(b.Memory, 0), GPU: a.GPU - max(b.GPU, 0)}
}
