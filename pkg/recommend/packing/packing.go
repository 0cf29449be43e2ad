// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package packing finds workloads of which one more pod fits on no node, although the cluster as a whole has room for it: a
// roll-out that starts a pod before it stops one, or the loss of a node, leaves it pending, and an autoscaler buys a node for
// it. Where the pods use much less than they ask for, smaller requests are the way out. The package counts room; what a
// container should ask for is package resource's to say.
package packing

import (
	"fmt"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
)

// Reasons of plans.
const (
	// ReasonLargerThanAnyNode asks for more than any node has, even an empty one.
	ReasonLargerThanAnyNode = "LargerThanAnyNode"
	// ReasonBlocksPacking asks for more than any node has left, while all together have enough.
	ReasonBlocksPacking = "BlocksPacking"
)

// Input is what is known of one workload.
type Input struct {
	// Pod is what the scheduler counts for one of its pods.
	Pod cost.Amounts
	// Largest is the container that asks for most, and what it asks for.
	Largest         string
	LargestRequests cost.Amounts
	// Replicas is how many pods it wants; 0 is scaled down.
	Replicas int32
	// Nodes are all nodes that take new pods, Allowed those of them that take its pods (by index; nil: all).
	Nodes   []Node
	Allowed []bool
	// Resized is what a pod would ask for if its requests followed its use; nil where that is not known, and ResizeProblem then
	// says why.
	Resized       *cost.Amounts
	ResizeProblem string
}

// IsBlocked tells whether one more pod fits nowhere for want of a node with enough room, whatever it uses: only then has
// anybody to find out what it uses.
func IsBlocked(in Input) bool {
	switch reason, _ := checkFit(in); reason {
	case ReasonLargerThanAnyNode, ReasonBlocksPacking:
		return true
	}
	return false
}

// capacity is what the nodes that take the pod have.
type capacity struct {
	nodes int
	// fit is how many have room for the pod now; largest is the most that one has free, whole the most that one has in all,
	// each resource for itself; sum what all have free.
	fit                 int
	largest, whole, sum cost.Amounts
	// most is the node with the largest share of the pod free.
	most string
}

func checkFit(in Input) (reason string, r capacity) {
	in.Pod = in.Pod.Max(cost.Amounts{}) // Below zero nothing is asked for.
	everFits, best := false, -1.0
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
			best, r.most = share, n.Name
		}
		r.largest, r.whole, r.sum = r.largest.Max(free), r.whole.Max(n.Allocatable), r.sum.Plus(free)
	}
	switch {
	case r.nodes == 0 || r.fit > 0 || in.Replicas <= 0 || in.Pod == (cost.Amounts{}):
		return "", r
	case !everFits:
		return ReasonLargerThanAnyNode, r
	case fits(in.Pod, r.sum):
		return ReasonBlocksPacking, r // Also where one node has the CPU, and another one the memory.
	}
	return "", r // All together have not enough: the cluster is full, whatever this workload asks for.
}

// freeShare is the least share of what is asked for that is there.
func freeShare(asks, has cost.Amounts) float64 {
	share := 1.0
	for _, p := range [][2]int64{{int64(asks.CPU), int64(has.CPU)}, {int64(asks.Memory), int64(has.Memory)}, {asks.GPU, has.GPU}} {
		if p[0] > 0 {
			share = min(share, float64(p[1])/float64(p[0]))
		}
	}
	return share
}

// Decide says whether a workload is in its own way, and whether smaller requests would help.
func Decide(in Input) recommend.Plan {
	reason, r := checkFit(in)
	switch {
	case in.Replicas <= 0:
		return recommend.Plan{State: recommend.Clear, Description: "It has no pods."}
	case r.nodes == 0:
		return recommend.Plan{State: recommend.Clear, Description: "No node takes its pods, whatever they ask for."}
	case reason == "" && r.fit > 0:
		return recommend.Plan{State: recommend.Clear, Description: fmt.Sprintf("One more pod fits on %d of %d nodes.", r.fit, r.nodes)}
	case reason == "":
		return recommend.Plan{State: recommend.Clear, Description: "All nodes together have less free than a pod asks for: the cluster is full, whatever the size of this one."}
	}
	plan := recommend.Plan{State: recommend.Ready, Action: recommend.NoAction, Reason: reason, Evidence: evidence(in, r)}
	plan.Description = "A pod asks for " + formatAmounts(in.Pod) + ". "
	if reason == ReasonLargerThanAnyNode {
		plan.Description += fmt.Sprintf("None of the %d nodes that take it has that much, even empty: the largest have %s.", r.nodes, formatAmounts(r.whole))
	} else {
		plan.Description += fmt.Sprintf("One more fits on none of the %d nodes that take it, although they have %s free together; the best is %s. "+
			"A roll-out, or the loss of a node, leaves a pod pending.", r.nodes, formatAmounts(r.sum), r.most)
	}
	if in.Largest != "" && in.LargestRequests != in.Pod {
		plan.Description += fmt.Sprintf(" Container %s asks for most of it: %s.", in.Largest, formatAmounts(in.LargestRequests))
	}
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

// countFits is the number of nodes that have room for so much.
func countFits(asks cost.Amounts, in Input) int {
	in.Pod = asks
	_, r := checkFit(in)
	return r.fit
}

func evidence(in Input, r capacity) []recommend.Evidence {
	var out []recommend.Evidence
	add := func(what, unit string, asks, free float64) {
		if asks > 0 {
			out = append(out, recommend.Evidence{Name: what + " that a pod asks for", Value: asks, Unit: unit, Limit: &free})
		}
	}
	add("cpu", "cores", float64(in.Pod.CPU)/1000, float64(r.largest.CPU)/1000)
	add("memory", "bytes", float64(in.Pod.Memory), float64(r.largest.Memory))
	add("GPUs", "", float64(in.Pod.GPU), float64(r.largest.GPU))
	return append(out, recommend.Evidence{Name: "nodes that take it", Value: float64(r.nodes)})
}

// formatAmounts writes amounts for people.
func formatAmounts(a cost.Amounts) string {
	out := fmt.Sprintf("%.4g cores and %.4g GiB", float64(max(a.CPU, 0))/1000, float64(max(a.Memory, 0))/(1<<30))
	if a.GPU > 0 {
		out += fmt.Sprintf(" and %d GPU", a.GPU)
	}
	return out
}
