// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/kube/podwatch"
	"crane.io/crane/pkg/nodeload"
)

// placed selects pods that are bound to a node.
const placed = "spec.nodeName!="

// Binds counts pod placements by any scheduler from a watch. It keeps the placements of the longest range of the
// policy and no pods, so memory does not grow with the cluster. It is a manager.Runnable that only the leader runs,
// and safe for concurrent use.
type Binds struct {
	pods  corev1client.PodsGetter
	clock clock.WithTicker

	mu     sync.Mutex
	binds  *nodeload.Binds
	next   *nodeload.Binds // counts of a list in progress
	ranges []nodeload.HotRange
	synced bool
	relist chan struct{}
}

// NewBinds returns a counter that counts nothing before Start.
func NewBinds(pods corev1client.PodsGetter, clk clock.WithTicker) *Binds {
	return &Binds{
		pods:   pods,
		clock:  clk,
		binds:  nodeload.NewBinds(nil),
		relist: make(chan struct{}, 1),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (b *Binds) NeedLeaderElection() bool { return true }

// Ranges implements BindCounter. New ranges are counted from a new list of pods.
func (b *Binds) Ranges(ranges []nodeload.HotRange) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.ranges = ranges
	b.synced = false
	select {
	case b.relist <- struct{}{}:
	default:
	}
}

// Count implements BindCounter.
func (b *Binds) Count(node string, now time.Time) ([]int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if !b.synced {
		return nil, false
	}

	return b.binds.Count(node, now), true
}

// Start implements manager.Runnable: it lists and watches until ctx ends.
func (b *Binds) Start(ctx context.Context) error {
	pods := podwatch.Watcher{
		Pods:   b.pods,
		Fields: placed,
		Clock:  b.clock,
		Name:   "nodeload",
	}

	for ctx.Err() == nil {
		b.mu.Lock()
		wanted := len(b.ranges) > 0
		b.mu.Unlock()

		if !wanted {
			select {
			case <-ctx.Done():
			case <-b.relist:
			}
			continue
		}

		pods.Run(ctx, b, b.relist)
	}

	return nil
}

// ListStarted implements podwatch.Handler.
func (b *Binds) ListStarted() {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.next = nodeload.NewBinds(b.ranges)
}

// PodUpdated implements podwatch.Handler.
func (b *Binds) PodUpdated(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()

	target := b.binds
	if b.next != nil {
		target = b.next
	}

	add(target, pod, b.clock.Now())
}

// ListCompleted implements podwatch.Handler.
func (b *Binds) ListCompleted() {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.binds = b.next
	b.next = nil
	b.synced = true
}

// PodDeleted implements podwatch.Handler.
func (b *Binds) PodDeleted(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.binds.Remove(string(pod.UID))
}

// add counts a pod from its placement.
func add(binds *nodeload.Binds, pod *corev1.Pod, now time.Time) {
	if pod.Spec.NodeName != "" {
		binds.Add(string(pod.UID), pod.Spec.NodeName, scheduledAt(pod), now)
	}
}

// scheduledAt returns when the condition PodScheduled became true, or the creation time of pods that no scheduler
// placed.
func scheduledAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}

	return pod.CreationTimestamp.Time
}
