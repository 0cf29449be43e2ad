// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/nodeload/controller"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/rebalance"
)

// holdTime is how long the target of a move is held: controllers replace an evicted pod at once, and a scheduler tries
// it within its backoff of ten seconds.
const holdTime = time.Minute

// hold reserves the load of a pod on its target, before the pod is evicted, in an annotation that plugin Dynamic of
// the scheduler counts. The resource version is a precondition, so that no other hold is lost.
func (c *Controller) hold(ctx context.Context, s *snapshot, m rebalance.Move, now time.Time) error {
	node := &s.nodes[m.To]
	if s.heldNodes[m.To] {
		return fmt.Errorf("holding node %s: it is held for another move of this round", node.Name)
	}

	holds, _ := nodeload.ParseHolds(node.Annotations[nodeload.HoldsKey]) // invalid ones are replaced
	holds = append(nodeload.ValidHolds(holds, now), nodeload.Hold{
		Pod:      m.Pod.UID,
		Workload: m.Pod.Workload,
		CPU:      int64(m.Pod.Use.CPU),
		Memory:   int64(m.Pod.Use.Memory),
		Until:    now.Add(holdTime).UTC().Truncate(time.Second),
	})

	if err := c.writeHolds(ctx, node, holds); err != nil {
		return err
	}

	s.heldNodes[m.To] = true
	return nil
}

// dropExpiredHolds removes expired holds from nodes. The scheduler ignores them when it reads the node again.
func (c *Controller) dropExpiredHolds(ctx context.Context, nodes []corev1.Node, now time.Time) {
	for i := range nodes {
		text := nodes[i].Annotations[nodeload.HoldsKey]
		if text == "" {
			continue
		}

		holds, err := nodeload.ParseHolds(text)
		valid := nodeload.ValidHolds(holds, now)
		if err == nil && len(valid) == len(holds) {
			continue
		}

		if err := c.writeHolds(ctx, &nodes[i], valid); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			ctrl.LoggerFrom(ctx).WithName("rebalance").Error(err, "removing expired holds")
		}
	}
}

func (c *Controller) writeHolds(ctx context.Context, node *corev1.Node, holds []nodeload.Hold) error {
	var value any
	if len(holds) > 0 {
		text, err := nodeload.FormatHolds(slices.Clone(holds))
		if err != nil {
			return err
		}

		value = text
	}

	return controller.PatchUnchangedNode(ctx, c.cfg.Patches, node, map[string]any{nodeload.HoldsKey: value}, nil)
}
