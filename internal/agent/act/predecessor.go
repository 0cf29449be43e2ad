// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// PredecessorState is what gocrane's agent left on a Node. It removes none of it at its end.
type PredecessorState struct {
	Taint, Condition bool
	// Resources are the elastic resources in the Node's capacity.
	Resources []corev1.ResourceName
}

// FindPredecessor returns what gocrane's agent left on a Node. Its condition has no reason, and its taint comes with the condition; Crane's
// have one. Crane's elastic resources come with an annotation.
func FindPredecessor(node *corev1.Node) (s PredecessorState) {
	s.Condition = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == ensurancev1alpha1.ConditionInterferenceIdentified && c.Reason == ""
	})
	s.Taint = s.Condition && IsTainted(node)
	if _, own := node.Annotations[ensurancev1alpha1.AnnotationElasticResources]; own {
		return s
	}
	for _, name := range []corev1.ResourceName{ensurancev1alpha1.ResourceReclaimedCPU, ensurancev1alpha1.ResourceReclaimedMemory} {
		if _, ok := node.Status.Capacity[name]; ok {
			s.Resources = append(s.Resources, name)
		}
	}
	return s
}

// IsEmpty reports whether nothing was left.
func (s PredecessorState) IsEmpty() bool { return !s.Taint && !s.Condition && len(s.Resources) == 0 }

// String lists what was left.
func (s PredecessorState) String() string {
	var parts []string
	if s.Taint {
		parts = append(parts, "taint "+ensurancev1alpha1.TaintKey)
	}
	if s.Condition {
		parts = append(parts, "condition "+string(ensurancev1alpha1.ConditionInterferenceIdentified))
	}
	for _, name := range s.Resources {
		parts = append(parts, "capacity "+string(name))
	}
	return strings.Join(parts, ", ")
}

// RemovePredecessor removes from a Node what gocrane's agent left and returns what that was. Of the resources, what pods hold stays: a
// kubelet that restarts would end these pods otherwise. withResources is false if another part of the agent maintains the resources.
func RemovePredecessor(ctx context.Context, nodes typedcorev1.NodeInterface, name string, withResources bool, held corev1.ResourceList) (removed PredecessorState, err error) {
	for range maxTaintConflicts {
		var node *corev1.Node
		if node, err = nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return removed, fmt.Errorf("node %s: %w", name, err)
		}
		left := FindPredecessor(node)
		if !withResources {
			left.Resources = nil
		}
		if err = removePredecessor(ctx, nodes, node, left, held); err == nil {
			return left, nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return removed, fmt.Errorf("failed to remove from node %s what gocrane's agent left: %w", name, err)
}

// removePredecessor writes the taints first: the condition shows whose they are if the second write fails.
func removePredecessor(ctx context.Context, nodes typedcorev1.NodeInterface, node *corev1.Node, left PredecessorState, held corev1.ResourceList) error {
	patch := func(kind types.PatchType, body map[string]any, subresources ...string) error {
		body["metadata"] = map[string]any{"uid": node.UID}
		if kind == types.MergePatchType {
			body["metadata"] = map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		_, err = nodes.Patch(ctx, node.Name, kind, raw, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
		return err
	}
	if left.Taint {
		taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isTaint)
		if err := patch(types.MergePatchType, map[string]any{"spec": map[string]any{"taints": taints}}); err != nil {
			return err
		}
	}
	status := map[string]any{}
	if left.Condition {
		status["conditions"] = []any{map[string]any{"type": ensurancev1alpha1.ConditionInterferenceIdentified, "$patch": "delete"}}
	}
	if len(left.Resources) > 0 {
		amounts := map[corev1.ResourceName]*resource.Quantity{}
		for _, name := range left.Resources {
			amounts[name] = nil
			if q := held[name]; !q.IsZero() {
				amounts[name] = &q
			}
		}
		status["capacity"], status["allocatable"] = amounts, amounts
	}
	if len(status) == 0 {
		return nil
	}
	return patch(types.StrategicMergePatchType, map[string]any{"status": status}, "status")
}
