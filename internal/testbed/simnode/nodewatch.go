// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// watchNodes watches the Node objects for changes by others. A kubelet compares its status with the object every ten
// seconds; one watch for the whole fleet is faster and cheaper.
func (f *Fleet) watchNodes(ctx context.Context) error {
	informer := f.cluster.Core().V1().Nodes().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.onNodeChanged,
		UpdateFunc: func(_, obj any) { f.onNodeChanged(obj) },
	})
	if err != nil {
		return fmt.Errorf("simulated nodes: watch the nodes: %w", err)
	}
	f.cluster.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("simulated nodes: list the nodes: %w", context.Cause(ctx))
	}
	return nil
}

// onNodeChanged requests a report of a node whose Ready condition the cluster has changed after late heartbeats:
// renewing only the lease would leave it NotReady and tainted until the next report is due.
func (f *Fleet) onNodeChanged(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok || isReady(node) {
		return
	}
	m, ok := f.members[node.Name]
	if !ok {
		return
	}
	m.setReported(time.Time{})
	f.beats.Add(node.Name)
}

// isReady reports whether the object's Ready condition is True, as reported by every running simulated node.
func isReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// keepConditions drops all fields of a Node that onNodeChanged does not read.
func keepConditions(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
			Status:     corev1.NodeStatus{Conditions: node.Status.Conditions},
		}, nil
	}
	return obj, nil
}
