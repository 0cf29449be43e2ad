// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"crane.io/crane/pkg/series"
)

const (
	// maxNodeGroups bounds the groups that are told apart; the nodes of the smallest beyond it are one group.
	maxNodeGroups = 16
	otherNodes    = "other nodes"
)

// NodePoolLabels are the labels by which pools of nodes are told apart, the first one that a node has: Crane's own, which
// anybody may set, then those of Karpenter and the large providers; at last the instance type that every provider sets.
func NodePoolLabels() []string {
	return []string{
		"crane.io/nodepool", "karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool",
		"kubernetes.azure.com/agentpool", "agentpool", "node.kubernetes.io/instance-type",
	}
}

// NodeShape is what tells one kind of node from another.
type NodeShape struct {
	Name   string
	Labels map[string]string
	// CPU and Memory are the node's capacity.
	CPU    series.MilliCPU
	Memory series.Bytes
	// PodCPU and PodMemory are what it has for pods; 0 where that is not known.
	PodCPU    series.MilliCPU
	PodMemory series.Bytes
}

// NodeGroup names the group of a node, "label=value": by the first pool label that it has, else by its capacity. Pods of a
// DaemonSet on nodes of one group can be sized together.
func NodeGroup(n NodeShape) string {
	for _, key := range NodePoolLabels() {
		if v := n.Labels[key]; v != "" {
			return key + "=" + v
		}
	}
	return fmt.Sprintf("%s cores, %s", FormatCPU(n.CPU), formatBytes(float64(n.Memory)))
}

// NodeGroups are the nodes of a cluster by group.
type NodeGroups struct {
	// Of is the group of each node by its name.
	Of map[string]string
	// Groups are sorted by name.
	Groups []NodeGroupShape
}

// NodeGroupShape is one group of nodes.
type NodeGroupShape struct {
	Name  string
	Nodes int
	// PodCPU and PodMemory are the largest that a node of the group has for pods, each for itself; 0 where not known.
	PodCPU    series.MilliCPU
	PodMemory series.Bytes
}

// GroupNodes puts nodes into groups, no more than 16: then the nodes of the smallest groups are one.
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
		g.Name, g.Nodes = names[i], g.Nodes+1
		g.PodCPU, g.PodMemory = max(g.PodCPU, n.PodCPU), max(g.PodMemory, n.PodMemory)
		shapes[names[i]] = g
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		out.Groups = append(out.Groups, shapes[name])
	}
	return out
}
