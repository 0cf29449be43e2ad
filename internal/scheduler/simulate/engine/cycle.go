// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Bounds of adaptive sampling of nodes, as in upstream's numFeasibleNodesToFind.
const (
	minFeasibleNodes      = 100
	minFeasiblePercentage = 5
)

// nodesToFind returns how many feasible nodes are enough, as upstream does.
func nodesToFind(percentage, nodes int) int {
	if nodes < minFeasibleNodes {
		return nodes
	}

	if percentage == 0 {
		percentage = max(minFeasiblePercentage, 50-nodes/125)
	}

	return max(minFeasibleNodes, nodes*percentage/100)
}

// cycle schedules pods one at a time, as upstream's scheduling cycle does: it updates the snapshot, runs PreFilter,
// Filter on nodes in turn until enough are feasible, PreScore and Score, selects the best node, and runs Reserve. It
// has no preemption (all pods have one priority) and no nominated nodes. Ties, which upstream breaks at random, are
// broken by the seed.
type cycle struct {
	framework  framework.Framework
	percentage int
	// next is the first node to filter, so that all nodes get their turn.
	next int
	tie  func(pod *corev1.Pod, node string) uint64
	// feasible is reused for each pod.
	feasible []fwk.NodeInfo
}

// find returns the node for a pod, or "" if none is feasible.
func (c *cycle) find(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (string, error) {
	if err := c.filter(ctx, state, pod, nodes); err != nil {
		return "", err
	}

	// One feasible node is selected without scores, as upstream does.
	switch len(c.feasible) {
	case 0:
		return "", nil
	case 1:
		return c.feasible[0].Node().Name, nil
	}

	if status := c.framework.RunPreScorePlugins(ctx, state, pod, c.feasible); !status.IsSuccess() {
		return "", fmt.Errorf("running PreScore for %s: %w", pod.Name, status.AsError())
	}

	scores, status := c.framework.RunScorePlugins(ctx, state, pod, c.feasible)
	if !status.IsSuccess() {
		return "", fmt.Errorf("scoring nodes for %s: %w", pod.Name, status.AsError())
	}

	best := 0
	tie := uint64(0)
	for i, s := range scores {
		switch {
		case i == 0 || s.TotalScore > scores[best].TotalScore:
			best = i
			tie = c.tie(pod, s.Name)
		case s.TotalScore == scores[best].TotalScore:
			if t := c.tie(pod, s.Name); t > tie {
				best = i
				tie = t
			}
		}
	}

	return scores[best].Name, nil
}

// filter stores the feasible nodes in c.feasible.
func (c *cycle) filter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) error {
	c.feasible = c.feasible[:0]
	allowed, status, _ := c.framework.RunPreFilterPlugins(ctx, state, pod)
	if status.IsRejected() {
		return nil
	}
	if !status.IsSuccess() {
		return fmt.Errorf("running PreFilter for %s: %w", pod.Name, status.AsError())
	}

	// Nodes are evaluated from where the last cycle ended, until enough are feasible.
	enough := nodesToFind(c.percentage, len(nodes))
	evaluated := 0
	for i := range nodes {
		if len(c.feasible) == enough {
			break
		}

		evaluated++
		info := nodes[(c.next+i)%len(nodes)]
		if !allowed.AllNodes() && !allowed.NodeNames.Has(info.Node().Name) {
			continue
		}

		status := c.framework.RunFilterPlugins(ctx, state, pod, info)
		if status.IsSuccess() {
			c.feasible = append(c.feasible, info)
		} else if !status.IsRejected() {
			return fmt.Errorf("filtering %s for %s: %w", info.Node().Name, pod.Name, status.AsError())
		}
	}

	c.next = (c.next + evaluated) % len(nodes)
	return nil
}
