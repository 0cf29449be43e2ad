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
	// Annotation is the record that CPU quotas may be left on the host.
	Annotation bool
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
	_, s.Annotation = node.Annotations[ensurancev1alpha1.AnnotationPredecessor]
	if _, annotated := node.Annotations[ensurancev1alpha1.AnnotationElasticResources]; annotated {
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
func (s PredecessorState) IsEmpty() bool {
	return !s.Taint && !s.Condition && !s.Annotation && len(s.Resources) == 0
}

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

	if s.Annotation {
		parts = append(parts, "annotation "+ensurancev1alpha1.AnnotationPredecessor)
	}

	return strings.Join(parts, ", ")
}

// RemovePredecessor removes from a Node what gocrane's agent left and returns what that was. Of the resources, what pods hold stays: a
// kubelet that restarts would end these pods otherwise. withResources is false if another part of the agent maintains the resources.
// quotasLeft means that CPU quotas are left on the host: the annotation then stays, or replaces the other marks.
func RemovePredecessor(ctx context.Context, nodes typedcorev1.NodeInterface, name string, withResources, quotasLeft bool, allocated corev1.ResourceList) (removed PredecessorState, err error) {
	for range maxTaintConflicts {
		var node *corev1.Node
		if node, err = nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return removed, fmt.Errorf("reading node %s: %w", name, err)
		}

		state := FindPredecessor(node)
		if !withResources {
			state.Resources = nil
		}

		if err = removePredecessor(ctx, nodes, node, state, quotasLeft, allocated); err == nil {
			state.Annotation = state.Annotation && !quotasLeft
			return state, nil
		}

		if !apierrors.IsConflict(err) {
			break
		}
	}

	return removed, fmt.Errorf("removing from node %s what gocrane's agent left: %w", name, err)
}

// removePredecessor writes the taints first: the condition shows whose they are if the second write fails. The annotation is set first or
// removed last.
func removePredecessor(ctx context.Context, nodes typedcorev1.NodeInterface, node *corev1.Node, state PredecessorState, quotasLeft bool, allocated corev1.ResourceList) error {
	// Each patch has the UID, so that it never changes another node of the same name.
	patch := func(kind types.PatchType, metadata, body map[string]any, subresources ...string) error {
		metadata["uid"] = node.UID
		body["metadata"] = metadata
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}

		_, err = nodes.Patch(ctx, node.Name, kind, raw, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
		return err
	}

	annotate := func(value any) error {
		return patch(types.MergePatchType, map[string]any{"annotations": map[string]any{ensurancev1alpha1.AnnotationPredecessor: value}}, map[string]any{})
	}

	if quotasLeft && !state.Annotation {
		if err := annotate(ensurancev1alpha1.PredecessorGocrane); err != nil {
			return err
		}
	}

	if state.Taint {
		taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isTaint)
		if err := patch(types.MergePatchType, map[string]any{"resourceVersion": node.ResourceVersion}, map[string]any{"spec": map[string]any{"taints": taints}}); err != nil {
			return err
		}
	}

	if status := removedStatus(state, allocated); len(status) > 0 {
		if err := patch(types.StrategicMergePatchType, map[string]any{}, map[string]any{"status": status}, "status"); err != nil {
			return err
		}
	}

	if quotasLeft || !state.Annotation {
		return nil
	}

	return annotate(nil)
}

// removedStatus returns the patch of a Node's status.
func removedStatus(state PredecessorState, allocated corev1.ResourceList) map[string]any {
	status := map[string]any{}
	if state.Condition {
		status["conditions"] = []any{map[string]any{"type": ensurancev1alpha1.ConditionInterferenceIdentified, "$patch": "delete"}}
	}

	if len(state.Resources) > 0 {
		amounts := map[corev1.ResourceName]*resource.Quantity{}
		for _, name := range state.Resources {
			amounts[name] = nil
			if q := allocated[name]; !q.IsZero() {
				amounts[name] = &q
			}
		}

		status["capacity"] = amounts
		status["allocatable"] = amounts
	}

	return status
}
