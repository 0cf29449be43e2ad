// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// watch starts the informer, processes existing pods and then follows all changes.
func (f *Fleet) watch(ctx context.Context) error {
	informer := f.factory.Core().V1().Pods().Informer()
	f.factory.StartWithContext(ctx)

	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("simulated nodes: listing the pods: %w", context.Cause(ctx))
	}

	pods, err := f.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("simulated nodes: listing the pods: %w", err)
	}

	// Running pods keep their resources; only then may others be admitted.
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		switch {
		case a.Status.StartTime != nil && b.Status.StartTime == nil:
			return -1
		case a.Status.StartTime == nil && b.Status.StartTime != nil:
			return 1
		}

		return 0
	})

	for _, pod := range pods {
		f.observe(pod)
	}

	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.observed(obj) },
		UpdateFunc: f.updated,
		DeleteFunc: func(obj any) { f.forget(obj) },
	})
	if err != nil {
		return fmt.Errorf("simulated nodes: watching the pods: %w", err)
	}

	return nil
}

func (f *Fleet) observed(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok {
		f.observe(pod)
	}
}

// updated processes a changed pod. After a gap in the watch it may be another pod of the same name.
func (f *Fleet) updated(oldObj, obj any) {
	before, okBefore := oldObj.(*corev1.Pod)
	after, okAfter := obj.(*corev1.Pod)
	if okBefore && okAfter && before.UID != after.UID {
		f.forget(before)
	}

	f.observed(obj)
}

// observe passes a pod to its node. A failed node ignores it; RecoverNode passes all pods again.
func (f *Fleet) observe(pod *corev1.Pod) {
	m, ok := f.members[pod.Spec.NodeName]
	if !ok {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	if m.down {
		return
	}

	m.node.Observe(pod, f.config.Clock.Now())
	f.queue.Add(keyOf(pod))
}

func (f *Fleet) forget(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}

	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}

	m, ok := f.members[pod.Spec.NodeName]
	if !ok {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.node.Forget(pod.UID)
	f.enqueue(m.node.Dirty())
	f.queue.Forget(keyOf(pod))
}

func (f *Fleet) enqueue(pods []*corev1.Pod) {
	for _, pod := range pods {
		f.queue.Add(keyOf(pod))
	}
}
