// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// TaintKey is the key of the taint of nodes that are too loaded for new pods. Node autoscalers simulate scheduling
// without plugin Dynamic, but see taints. cluster-autoscaler counts a node with a taint of this prefix as ready, and
// expects no such taint on new nodes of its group.
const TaintKey = "status-taint.cluster-autoscaler.kubernetes.io/crane-load"

// taintHysteresis is how far below the limit the load has to be, as a share of the mark schedule, before the taint is
// removed.
const taintHysteresis units.Ratio = 0.1

// updateTaints taints nodes whose load is above a share of the mark schedule, and removes the taint when it is lower
// again or unknown, or if nodes are not to be tainted.
func (c *Controller) updateTaints(ctx context.Context, nodes []corev1.Node, now time.Time) {
	log := ctrl.LoggerFrom(ctx).WithName("nodeload")
	tainted := 0
	for i := range nodes {
		n := &nodes[i]
		isTainted := slices.ContainsFunc(n.Spec.Taints, ourTaint)
		share, ok := c.shareOfMark(n, now)

		limit := c.cfg.TaintAbove
		if isTainted {
			limit -= taintHysteresis
		}

		want := c.cfg.TaintAbove > 0 && ok && share > limit
		if want {
			tainted++
		}

		if want == isTainted {
			continue
		}

		if c.cfg.DryRun {
			log.Info("would change the taint (dry run)", "node", n.Name, "taint", TaintKey, "tainted", want)
			continue
		}

		switch err := c.setTaint(ctx, n, want); {
		case err == nil:
			log.Info("changed the taint", "node", n.Name, "taint", TaintKey, "tainted", want, "shareOfMark", float64(share))
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err): // the next round reads the node again
			log.Error(err, "changing the taint", "node", n.Name)
		}
	}

	c.cfg.Metrics.tainted(tainted)
}

func ourTaint(t corev1.Taint) bool { return t.Key == TaintKey }

// shareOfMark returns the load of a node as a share of the mark schedule, of the resource in which it is highest;
// false if no load is known.
func (c *Controller) shareOfMark(n *corev1.Node, now time.Time) (share units.Ratio, found bool) {
	for resource, marks := range c.policy.Marks {
		gauge, ok := c.policy.Gauge(resource)
		if !ok || marks.Schedule <= 0 {
			continue
		}

		m := c.policy.Metrics[gauge]
		sample, err := c.cfg.Format.ParseLoad(n.Annotations[m.Name])
		if err != nil || sample.StateAt(now, m.Active()) != nodeload.Fresh {
			continue
		}

		share = max(share, sample.Value/marks.Schedule)
		found = true
	}

	return share, found
}

// LoadTaint is the taint of nodes that are too loaded for new pods.
func LoadTaint() corev1.Taint {
	return corev1.Taint{Key: TaintKey, Effect: corev1.TaintEffectNoSchedule}
}

// setTaint adds or removes the taint of a node. A merge patch replaces the whole list.
func (c *Controller) setTaint(ctx context.Context, n *corev1.Node, want bool) error {
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), ourTaint)
	if want {
		taints = append(taints, LoadTaint())
	}

	return PatchUnchangedNode(ctx, c.cfg.Patches, n, nil, map[string]any{"taints": taints})
}
