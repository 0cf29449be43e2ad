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
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	topology "crane.io/crane/api/topology/v1alpha1"
)

// PreBindPreFlight skips PreBind unless the pod has an annotation and gets no zones. Otherwise the removal may run
// concurrently with the writes of other plugins.
func (p *Plugin) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if result(pod) == "" || p.core.store.result(pod.UID, node) != "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}

	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind removes the annotation of a pod without zones, which a Binding cannot do.
func (p *Plugin) PreBind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	if err := p.writeResult(ctx, pod, ""); err != nil {
		return fwk.AsStatus(err)
	}

	return nil
}

// Bind binds pods with zones, with the annotation in the Binding: the API server copies it to the pod in the same
// write. Other pods are left to the next binder, which is the default one.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c := readCycle(state)
	zones := p.core.store.result(pod.UID, node)
	if c == nil || zones == "" {
		return fwk.NewStatus(fwk.Skip)
	}

	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        pod.Name,
			UID:         pod.UID,
			Annotations: map[string]string{topology.AnnotationPodTopologyResult: zones},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}

	if err := p.bind(ctx, binding); err != nil {
		return fwk.AsStatus(fmt.Errorf("binding pod %s/%s to node %s: %w", pod.Namespace, pod.Name, node, err))
	}

	c.bound.Store(true)
	return nil
}

func (p *Plugin) bind(ctx context.Context, binding *corev1.Binding) error {
	if cacher := p.api.APICacher(); cacher != nil {
		done, err := cacher.BindPod(binding)
		if err != nil {
			return err
		}

		return cacher.WaitOnFinish(ctx, done)
	}

	return p.api.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// PostBind writes the annotation of a pod with zones that another binder has bound, such as an extender.
func (p *Plugin) PostBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	c := readCycle(state)
	zones := p.core.store.result(pod.UID, node)
	if c == nil || zones == "" || c.bound.Load() {
		return
	}

	if err := p.writeResult(ctx, pod, zones); err != nil {
		klog.FromContext(ctx).Error(err, "pod shares CPUs although it holds zones", "pod", klog.KObj(pod), "node", node)
	}
}

// writeResult sets the annotation of a pod; an empty value removes it. With the UID the API server rejects the patch
// for another pod of the same name.
func (p *Plugin) writeResult(ctx context.Context, pod *corev1.Pod, value string) error {
	var v any = value
	if value == "" {
		v = nil
	}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID,
		"annotations": map[string]any{topology.AnnotationPodTopologyResult: v},
	}})
	if err == nil {
		_, err = p.api.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}

	if err != nil {
		return fmt.Errorf("writing annotation %s of pod %s/%s: %w", topology.AnnotationPodTopologyResult, pod.Namespace, pod.Name, err)
	}

	return nil
}
