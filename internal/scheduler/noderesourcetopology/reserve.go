// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	topology "crane.io/crane/api/topology/v1alpha1"
)

// Reserve holds zones for the pod, selected from the currently free ones. It may be called twice.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c := readCycle(state)
	if c == nil {
		return nil
	}
	info, err := p.snapshot(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("look up node %s: %w", node, err))
	}
	v, err := p.core.store.assume(pod, p.view(info), c.request)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("hold zones of node %s: %w", node, err))
	}
	if !v.passes(p.missing) {
		p.core.waiting.add(waiter{pod: pod, request: c.request, missing: p.missing, queue: p.queue})
		return fwk.NewStatus(fwk.Unschedulable, reasonTaken)
	}
	p.core.waiting.remove(pod.UID)
	return nil
}

// Unreserve releases the zones of a pod that was not bound. It may be called without Reserve.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.core.store.forget(pod.UID)
}

// PreBindPreFlight skips PreBind for pods whose annotation is correct, such as all without a zone request. Otherwise
// the write may run concurrently with those of other plugins.
func (p *Plugin) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if p.core.store.result(pod.UID, node) == result(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind writes the pod's zones into its annotation. An annotation from a copied manifest or an earlier attempt on
// another node is replaced or, without zones, removed.
func (p *Plugin) PreBind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	patch, err := annotationPatch(pod.UID, p.core.store.result(pod.UID, node))
	if err != nil {
		return fwk.AsStatus(err)
	}
	if _, err := p.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fwk.AsStatus(fmt.Errorf("write annotation %s of pod %s/%s: %w", topology.AnnotationPodTopologyResult, pod.Namespace, pod.Name, err))
	}
	return nil
}

// annotationPatch returns a merge patch. With the UID the API server rejects it for another pod of the same name.
func annotationPatch(uid types.UID, value string) ([]byte, error) {
	var v any = value
	if value == "" {
		v = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         uid,
		"annotations": map[string]any{topology.AnnotationPodTopologyResult: v},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}
