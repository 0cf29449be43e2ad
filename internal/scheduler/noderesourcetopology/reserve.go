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

// Reserve holds zones for the pod, chosen on what is free at this moment. It may come twice.
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

// Unreserve lets go what is held for a pod that did not get to its node. It may come without Reserve.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.core.store.forget(pod.UID)
}

// PreBindPreFlight skips PreBind for pods whose annotation is right already, which are all that ask nothing of zones.
// Otherwise the write may run beside those of other plugins.
func (p *Plugin) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if p.core.store.result(pod.UID, node) == result(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind writes the pod's zones to its annotation. One that is there already, from a copied manifest or an earlier try on
// another node, is replaced or, where no zones are held, taken away.
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

// annotationPatch is a merge patch. The UID in it makes the API server refuse it for another pod of the same name.
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
