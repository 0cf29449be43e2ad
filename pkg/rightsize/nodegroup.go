// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"crane.io/crane/pkg/units"
)

const (
	// maxNodeGroups bounds the number of groups; the nodes of the smallest ones beyond it form one group.
	maxNodeGroups = 16
	otherNodes    = "other nodes"
)

// NodePoolLabels returns the labels that identify node pools; the first one that a node has counts: Crane's own, which users
// may set, then those of Karpenter and the large providers, then the instance type.
func NodePoolLabels() []string {
	return []string{
		"crane.io/nodepool", "karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool",
		"kubernetes.azure.com/agentpool", "agentpool", "node.kubernetes.io/instance-type",
	}
}

// NodeShape holds the fields of a node that determine its group.
type NodeShape struct {
	Name   string
	Labels map[string]string
	// CPU and Memory are the capacity of the node.
	CPU    units.MilliCPU
	Memory units.Bytes
	// PodCPU and PodMemory are its allocatable resources; 0 if unknown.
	PodCPU    units.MilliCPU
	PodMemory units.Bytes
}

// NodeGroup returns the group of a node, "label=value": by the first pool label that it has, else by its capacity. The
// DaemonSet pods on nodes of one group can be sized together.
func NodeGroup(n NodeShape) string {
	for _, key := range NodePoolLabels() {
		if v := n.Labels[key]; v != "" {
			return key + "=" + v
		}
	}

	return fmt.Sprintf("%s cores, %s", units.FormatCPU(n.CPU), formatBytes(float64(n.Memory)))
}

// NodeGroups are the nodes of a cluster by group.
type NodeGroups struct {
	// Of maps the name of each node to its group.
	Of map[string]string
	// Groups are sorted by name.
	Groups []NodeGroupShape
}

// NodeGroupShape is one group of nodes.
type NodeGroupShape struct {
	Name  string
	Nodes int
	// PodCPU and PodMemory are the largest allocatable resources of a node of the group, each independently; 0 if unknown.
	PodCPU    units.MilliCPU
	PodMemory units.Bytes
}

// GroupNodes groups nodes, into at most 16 groups: beyond it the nodes of the smallest groups form one.
func GroupNodes(nodes []NodeShape) NodeGroups {
	if len(nodes) == 0 {
		return NodeGroups{}
	}

	counts := map[string]int{}
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = NodeGroup(n)
		counts[names[i]]++
	}

	// Labels may identify single nodes, so the number of groups is bounded.
	if len(counts) > maxNodeGroups {
		order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
		})

		small := map[string]bool{}
		for _, name := range order[maxNodeGroups-1:] {
			small[name] = true
		}

		for i := range names {
			if small[names[i]] {
				names[i] = otherNodes
			}
		}
	}

	out := NodeGroups{Of: make(map[string]string, len(nodes))}
	shapes := map[string]NodeGroupShape{}
	for i, n := range nodes {
		out.Of[n.Name] = names[i]
		g := shapes[names[i]]
		g.Name = names[i]
		g.Nodes++
		g.PodCPU = max(g.PodCPU, n.PodCPU)
		g.PodMemory = max(g.PodMemory, n.PodMemory)
		shapes[names[i]] = g
	}

	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		out.Groups = append(out.Groups, shapes[name])
	}

	return out
}
