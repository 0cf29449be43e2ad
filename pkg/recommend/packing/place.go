// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"cmp"
	"slices"

	"crane.io/crane/pkg/cost"
)

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
	_, left := Place(pods, nodes)
	return left
}

// Place places pods into the free capacity of nodes, the largest first and each where the least capacity remains. It returns
// the nodes with their remaining capacity and the names of the pods that do not fit. It is a heuristic that may place fewer
// pods than possible, and ignores affinity between pods.
func Place(pods []Demand, nodes []Node) (after []Node, left []string) {
	pods, nodes = slices.Clone(pods), slices.Clone(nodes)
	most := cost.Amounts{CPU: 1, Memory: 1, GPU: 1}
	for _, n := range nodes {
		most = most.Max(n.Allocatable)
	}
	size := func(a cost.Amounts) float64 {
		return max(float64(a.CPU)/float64(most.CPU), float64(a.Memory)/float64(most.Memory), float64(a.GPU)/float64(most.GPU))
	}
	slices.SortStableFunc(pods, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(size(b.Requests), size(a.Requests)), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range pods {
		best, least := -1, 0.0
		for i, n := range nodes {
			if !p.allowed(i) || n.FreePods < 1 || !fits(p.Requests, n.Free) {
				continue
			}
			if rest := size(subtract(n.Free, p.Requests)); best < 0 || rest < least {
				best, least = i, rest
			}
		}
		if best < 0 {
			left = append(left, p.Name)
			continue
		}
		nodes[best].Free = subtract(nodes[best].Free, p.Requests)
		nodes[best].FreePods--
	}
	return nodes, left
}

// fits reports whether the free amounts hold the requested ones. Resources that are not requested are ignored.
func fits(asks, free cost.Amounts) bool {
	return (asks.CPU <= 0 || asks.CPU <= free.CPU) && (asks.Memory <= 0 || asks.Memory <= free.Memory) && (asks.GPU <= 0 || asks.GPU <= free.GPU)
}

func subtract(a, b cost.Amounts) cost.Amounts {
	return cost.Amounts{CPU: a.CPU - max(b.CPU, 0), Memory: a.Memory - max(b.Memory, 0), GPU: a.GPU - max(b.GPU, 0)}
}
