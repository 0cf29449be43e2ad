// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/kube/eviction"
	"crane.io/crane/pkg/rebalance"
)

// Reasons of events.
const (
	reasonMoved      = "Rebalanced"
	reasonWouldMove  = "RebalanceDryRun"
	reasonRefused    = "RebalanceRefused"
	reasonNotMovable = "RebalanceBlocked"
	action           = "Evict"
)

// Evictor evicts a pod if its UID matches.
type Evictor interface {
	Evict(ctx context.Context, namespace, name string, uid types.UID) error
}

// APIEvictor evicts through the eviction subresource (policy/v1), which respects PodDisruptionBudgets.
type APIEvictor struct{ Client policyclient.EvictionsGetter }

// Evict implements Evictor.
func (e APIEvictor) Evict(ctx context.Context, namespace, name string, uid types.UID) error {
	return e.Client.Evictions(namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
}

// act executes a plan, or reports it in a dry run.
func (c *Controller) act(ctx context.Context, s *snapshot, plan rebalance.Plan, now time.Time) {
	for _, m := range plan.Moves {
		c.move(ctx, s, m, now)
	}
	c.reportRefusals(ctx, s, plan, now)
}

// describeMove returns what is moved and why, with numbers.
func describeMove(s *snapshot, m rebalance.Move) string {
	return fmt.Sprintf("node %s uses %.0f %% of %s, more than %.0f %% in %d readings; without this pod (%dm CPU, %d MiB) it uses %.0f %%; node %s has capacity for it and would use %.0f %%",
		s.nodes[m.From].Name, 100*m.Before, m.Heat.Resource, 100*m.Heat.Evict, m.Heat.Rounds,
		m.Pod.Use.CPU, m.Pod.Use.Memory>>20, 100*m.After, s.nodes[m.To].Name, 100*m.ToLoad)
}

func (c *Controller) move(ctx context.Context, s *snapshot, m rebalance.Move, now time.Time) {
	log := ctrl.LoggerFrom(ctx).WithName("rebalance").WithValues("namespace", m.Pod.Namespace, "pod", m.Pod.Name)
	regarding := &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Pod",
		Namespace:  m.Pod.Namespace,
		Name:       m.Pod.Name,
		UID:        types.UID(m.Pod.UID),
	}

	text := describeMove(s, m)
	node := s.nodes[m.From].Name
	if c.cfg.Settings.DryRun {
		log.Info("would evict (dry run)", "reason", text)
		c.cfg.Events.Eventf(regarding, nil, corev1.EventTypeNormal, reasonWouldMove, action, "would be evicted (dry run): %s", text)
		c.count("dry-run", m)
		c.startCoolDown(node, m.Pod.Workload, now)

		return
	}

	if err := c.hold(ctx, s, m, now); err != nil {
		log.V(1).Info("cannot hold the target, the pod stays", "err", err)
		c.count("not-held", m)
		return
	}

	err := c.cfg.Evictor.Evict(ctx, m.Pod.Namespace, m.Pod.Name, types.UID(m.Pod.UID))
	pdbReason, blocked := eviction.BlockedByPDB(err)
	switch {
	case err == nil:
		log.Info("evicted", "reason", text)
		c.departures[departure{workload: m.Pod.Workload, node: node}] = &departureRecord{at: now}
		c.cfg.Events.Eventf(regarding, nil, corev1.EventTypeNormal, reasonMoved, action, "evicted: %s", text)
		c.count("evicted", m)
		c.startCoolDown(node, m.Pod.Workload, now)

	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		c.count("gone", m)

	case blocked:
		log.V(1).Info("eviction blocked by a PodDisruptionBudget", "reason", pdbReason)
		c.cfg.Events.Eventf(regarding, nil, corev1.EventTypeNormal, reasonRefused, action, "not evicted, its PodDisruptionBudget does not allow it: %s", text)
		c.count("budget", m)
		c.cooling["workload/"+m.Pod.Workload] = now.Add(c.cfg.Settings.CoolDown)

	default:
		if !errors.Is(err, context.Canceled) {
			log.Error(err, "evicting")
		}

		c.count("failed", m)
		if eviction.OutcomeUnknown(err) { // the eviction may have succeeded, so it counts as a move
			c.startCoolDown(node, m.Pod.Workload, now)
			return
		}

		c.cooling["workload/"+m.Pod.Workload] = now.Add(c.cfg.Settings.CoolDown)
	}
}

func (c *Controller) count(result string, m rebalance.Move) {
	c.cfg.Metrics.moved(result, string(m.Heat.Resource))
}

// startCoolDown excludes the node and the workload from moves for a while.
func (c *Controller) startCoolDown(node, workload string, now time.Time) {
	until := now.Add(c.cfg.Settings.CoolDown)
	c.cooling["node/"+node] = until
	c.cooling["workload/"+workload] = until
	c.moves = append(c.moves, now)
}

// maxReportedPods bounds the pods named in an event about a node.
const maxReportedPods = 5

// reportRefusals reports for each hot node without moves why, at most once per cool-down.
func (c *Controller) reportRefusals(ctx context.Context, s *snapshot, plan rebalance.Plan, now time.Time) {
	moved := map[int]bool{}
	for _, m := range plan.Moves {
		moved[m.From] = true
	}

	reasons := map[int][]string{}
	for _, r := range plan.Refusals {
		text := r.Reason
		if r.Pod != "" {
			text = r.Pod + ": " + r.Reason
		}

		reasons[r.Node] = append(reasons[r.Node], text)
	}

	// The first pods and their reasons are reported, as far as they fit into an event.
	for node, list := range reasons {
		name := s.nodes[node].Name
		if moved[node] {
			delete(c.reported, name)
			continue
		}

		if more := len(list) - maxReportedPods; more > 0 {
			list = append(list[:maxReportedPods], fmt.Sprintf("and %d more", more))
		}

		text := strings.Join(list, "; ")
		if len(text) > 900 {
			text = strings.ToValidUTF8(text[:900], "") + "..."
		}

		if list[0] == rebalance.CoolingDown || now.Before(c.reported[name]) {
			continue
		}

		c.reported[name] = now.Add(max(c.cfg.Settings.CoolDown, c.cfg.Settings.Interval))
		ctrl.LoggerFrom(ctx).WithName("rebalance").Info("no pod is moved off a hot node", "node", name, "reason", text)
		regarding := &corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Node",
			Name:       name,
			UID:        s.nodes[node].UID,
		}
		c.cfg.Events.Eventf(regarding, nil, corev1.EventTypeWarning, reasonNotMovable, action, "the node is hot and no pod is moved: %s", text)
	}
}
