// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// fieldManager owns what the agent writes to objects of the API server.
const fieldManager = "crane-agent"

const (
	// maxTaintConflicts is how often a write is tried that others overtake, before it waits for the next time.
	maxTaintConflicts = 3
	// messageInterval is how often the condition's message may change while its status stays: a rule may come and go each second.
	messageInterval = time.Minute

	reasonRuleFires   = "RuleFires"
	reasonNoRuleFires = "NoRuleFires"
)

// IsTainted tells whether a node has the taint that keeps new pods away.
func IsTainted(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Spec.Taints, isTaint)
}

// isTaint tells the agent's taint from others: one of the same key with another effect is somebody else's.
func isTaint(t corev1.Taint) bool {
	return t.Key == ensurancev1alpha1.TaintKey && t.Effect == corev1.TaintEffectPreferNoSchedule
}

// Sync brings the taint and the condition to what is wanted, with no request where node, what a watch knows, is so already; nil stands
// for a node that is not known. Whatever it writes it decides from a fresh read. changed tells that the taint was set or taken away since
// the last time that it told so, be it by a write of which nobody has heard that it went through. Sync is for one goroutine.
func (t *Tainter) Sync(ctx context.Context, node *corev1.Node, want bool, why string) (changed bool, err error) {
	if node != nil && IsTainted(node) == want && t.condition(node, want, why) == nil {
		return t.confirmWrite(want), nil
	}
	for range maxTaintConflicts {
		var fresh *corev1.Node
		if fresh, err = t.cfg.Nodes.Get(ctx, t.cfg.Name, metav1.GetOptions{}); err != nil {
			return false, fmt.Errorf("node %s: %w", t.cfg.Name, err)
		}
		var is bool
		if is, err = t.write(ctx, fresh, want, why); is && t.confirmWrite(want) {
			changed = true
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return changed, err
}

// confirmWrite tells whether the node, which is as wanted by now, has become so by a write of this tainter that was not told of yet.
func (t *Tainter) confirmWrite(want bool) bool {
	changed := t.writePending && t.pendingTaint == want
	t.writePending = false
	return changed
}

// write patches what differs: two requests at most. One that fails does not keep the other from being tried. is tells that the taint is as
// wanted.
func (t *Tainter) write(ctx context.Context, node *corev1.Node, want bool, why string) (is bool, err error) {
	taintErr := t.writeTaint(ctx, node, want)
	if apierrors.IsConflict(taintErr) {
		return false, taintErr
	}
	var conditionErr error
	if c := t.condition(node, want, why); c != nil {
		conditionErr = t.patch(ctx, types.StrategicMergePatchType, map[string]any{"status": map[string]any{"conditions": []any{c}}}, "status")
	}
	return taintErr == nil, errors.Join(taintErr, conditionErr)
}

// writeTaint replaces the list of taints, which has no keys to merge by, as long as the node is the one that was read: a taint that
// somebody set since then would be lost otherwise.
func (t *Tainter) writeTaint(ctx context.Context, node *corev1.Node, want bool) error {
	if IsTainted(node) == want {
		return nil
	}
	t.writePending, t.pendingTaint = true, want
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isTaint)
	if want {
		taints = append(taints, corev1.Taint{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule})
	}
	return t.patch(ctx, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": taints},
	})
}

func (t *Tainter) patch(ctx context.Context, kind types.PatchType, body any, subresources ...string) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("node %s: %w", t.cfg.Name, err)
	}
	if _, err := t.cfg.Nodes.Patch(ctx, t.cfg.Name, kind, raw, metav1.PatchOptions{FieldManager: fieldManager}, subresources...); err != nil {
		return fmt.Errorf("node %s: %w", t.cfg.Name, err)
	}
	return nil
}

// condition is the condition that a node should have instead of its own, nil for that one, or for none at all: a node that has never been
// tight gets no word of it.
func (t *Tainter) condition(node *corev1.Node, want bool, why string) *corev1.NodeCondition {
	at := metav1.NewTime(t.cfg.Clock.Now().Truncate(time.Second))
	next := corev1.NodeCondition{
		Type: ensurancev1alpha1.ConditionInterferenceIdentified, Status: corev1.ConditionFalse, Reason: reasonNoRuleFires, Message: why,
		LastHeartbeatTime: at, LastTransitionTime: at,
	}
	if want {
		next.Status, next.Reason = corev1.ConditionTrue, reasonRuleFires
	}
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == next.Type })
	if i < 0 {
		if !want {
			return nil
		}
		return &next
	}
	last := &node.Status.Conditions[i]
	if last.Status == next.Status {
		if next.LastTransitionTime = last.LastTransitionTime; !want || last.Message == why || at.Sub(last.LastHeartbeatTime.Time) < messageInterval {
			return nil
		}
	}
	return &next
}
