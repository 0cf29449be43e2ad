// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"

	"crane.io/crane/pkg/rightsize"
)

// NodeGroups are the nodes by their pools, as far as kube-state-metrics exports the labels that tell them, else by their
// sizes. What nodes have for pods is not said: Constraints has the largest.
func (t *ClusterState) NodeGroups(ctx context.Context) (rightsize.NodeGroups, error) {
	inv, err := t.inventory(ctx)
	if err != nil {
		return rightsize.NodeGroups{}, err
	}
	nodes, err := t.nodes(ctx, inv, rightsize.NodePoolLabels())
	if err != nil {
		return rightsize.NodeGroups{}, err
	}
	shapes := make([]rightsize.NodeShape, 0, len(nodes))
	for _, n := range nodes {
		shapes = append(shapes, rightsize.NodeShape{Name: n.Name, Labels: n.Labels, CPU: n.Size.CPU, Memory: n.Size.Memory})
	}
	return rightsize.GroupNodes(shapes), nil
}
