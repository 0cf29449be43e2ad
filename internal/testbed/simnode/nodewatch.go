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

// watchNodes follows the Node objects for what others make of them. A kubelet compares its status with the object every ten
// seconds; one watch tells a whole fleet the same at once, and costs nothing while nobody touches them.
func (f *Fleet) watchNodes(ctx context.Context) error {
	informer := f.cluster.Core().V1().Nodes().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.judged,
		UpdateFunc: func(_, obj any) { f.judged(obj) },
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

// judged answers a cluster that gave a node up, after heartbeats that came too late, with a report that it is there:
// renewing the lease alone would leave it NotReady, and its taints on, until the next report is due.
func (f *Fleet) judged(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok || said(node) {
		return
	}
	m, ok := f.members[node.Name]
	if !ok {
		return
	}
	m.setReported(time.Time{})
	f.beats.Add(node.Name)
}

// said tells whether the object's Ready condition is what every simulated node that is up reports.
func said(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// keepConditions keeps of a Node what judged reads.
func keepConditions(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
			Status:     corev1.NodeStatus{Conditions: node.Status.Conditions},
		}, nil
	}
	return obj, nil
}
