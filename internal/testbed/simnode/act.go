// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// minWake is the minimum interval between steps of a pod.
const minWake = 10 * time.Millisecond

// callTimeout bounds one call to the API server.
const callTimeout = 10 * time.Second

// work steps pods until the queue is shut down. The queue passes a pod to one worker at a time, so its statuses are
// written in order.
func (f *Fleet) work(ctx context.Context) {
	for {
		key, quit := f.queue.Get()
		if quit {
			return
		}

		if err := f.step(ctx, key); err != nil && ctx.Err() == nil {
			f.config.Log.V(1).Info("retrying to write a pod's status", "pod", key.namespace+"/"+key.name, "reason", err.Error())
			f.queue.AddRateLimited(key)
		} else {
			f.queue.Forget(key)
		}

		f.queue.Done(key)
	}
}

// step computes the pod's current status and writes it.
func (f *Fleet) step(ctx context.Context, key podKey) error {
	m, ok := f.members[key.node]
	if !ok {
		return nil
	}

	m.mu.Lock()
	if m.down {
		m.mu.Unlock()
		return nil
	}

	now := f.config.Clock.Now()

	// Only the step is done under the lock; writes to the API server follow.
	out := m.node.Step(key.uid, now)
	dirty := m.node.Dirty()
	events := m.node.Events()
	m.mu.Unlock()
	f.recordEvents(m, events)
	f.enqueue(dirty)

	if out.Pod == nil {
		return nil
	}

	if !out.Wake.IsZero() {
		f.queue.AddAfter(key, max(out.Wake.Sub(now), minWake))
	}

	// The informer may already have another pod of the same name.
	base, err := f.pods.Pods(key.namespace).Get(key.name)
	if apierrors.IsNotFound(err) || err == nil && base.UID != key.uid {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading pod %s/%s: %w", key.namespace, key.name, err)
	}

	if err := f.writeStatus(ctx, base, &out.Pod.Status); err != nil {
		return err
	}

	if out.Remove {
		return f.remove(ctx, base)
	}

	return nil
}

// writeStatus patches the difference. A deleted pod is not an error.
func (f *Fleet) writeStatus(ctx context.Context, base *corev1.Pod, want *corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(&base.Status, want) {
		return nil
	}

	patch, err := statusPatch(base, want)
	if err != nil {
		return fmt.Errorf("computing the status patch of pod %s/%s: %w", base.Namespace, base.Name, err)
	}

	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	_, err = f.client.CoreV1().Pods(base.Namespace).Patch(ctx, base.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or replaced by another pod of the same name
	}
	if err != nil {
		return fmt.Errorf("writing the status of pod %s/%s: %w", base.Namespace, base.Name, err)
	}

	return nil
}

// statusPatch returns the strategic merge patch between two statuses of the pod, bound to its UID.
func statusPatch(base *corev1.Pod, want *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: base.Status})
	if err != nil {
		return nil, err
	}

	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: base.UID}, Status: *want})
	if err != nil {
		return nil, err
	}

	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}

// remove deletes the object of a terminated pod. The API server itself deletes one without grace period.
func (f *Fleet) remove(ctx context.Context, pod *corev1.Pod) error {
	if g := pod.DeletionGracePeriodSeconds; g != nil && *g == 0 {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	options := *metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err := f.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}

	return nil
}
