// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"cmp"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"crane.io/crane/pkg/nodeload"
)

// table maps pod UIDs to values.
type table[V any] struct {
	mu   sync.Mutex
	rows map[types.UID]V // guarded by mu
}

func (t *table[V]) Store(pod types.UID, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.rows == nil {
		t.rows = map[types.UID]V{}
	}
	t.rows[pod] = v
}

func (t *table[V]) Load(pod types.UID) (V, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	v, ok := t.rows[pod]
	return v, ok
}

func (t *table[V]) Delete(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.rows, pod)
}

func (t *table[V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return len(t.rows)
}

// All returns a copy of all rows.
func (t *table[V]) All() map[types.UID]V {
	t.mu.Lock()
	defer t.mu.Unlock()

	return maps.Clone(t.rows)
}

// rejection is the last attempt of a pod that the plugin rejected on a node.
type rejection struct {
	attempt uint64
	pod     *corev1.Pod
}

type (
	rejections   = table[rejection]
	reservations = table[string]
)

// podTracker turns the states of pods into the pending load of their nodes.
type podTracker struct {
	cluster *cluster
	history *History
	// rejected holds the pods, by UID, that the plugin rejected on a node in their last attempt and that are not
	// placed.
	rejected rejections
	// reserved holds the nodes of pods, by UID, that this scheduler placed and that the API server does not show
	// there yet.
	reserved reservations
}

// added processes an existing pod. Pods placed by other schedulers become pending load, except those that run for
// so long that every metric contains them. The pod informer calls it, updated and deleted, or the driver of a
// plugin without an informer.
func (t *podTracker) added(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}

	if ended(pod) {
		t.deleted(pod)
		return
	}

	// The API server shows the pod on its node, so that it is neither reserved nor waiting.
	t.reserved.Delete(pod.UID)
	t.rejected.Delete(pod.UID)

	now := t.cluster.clock.Now()
	since := runningSince(pod)
	switch {
	case since.IsZero():
		use, _ := t.estimate(pod, t.share())
		t.cluster.placed(pod.Spec.NodeName, string(pod.UID), use)

	case now.Sub(since) < t.cluster.rules.Load().Horizon():
		use, _ := t.estimate(pod, t.share())
		t.cluster.raise(t.cluster.entry(pod.Spec.NodeName).change(now, func(a *nodeload.Arrivals) bool {
			if a.Has(string(pod.UID)) {
				return a.Start(string(pod.UID), since)
			}

			a.Add(string(pod.UID), use, since)
			return true
		}))
	}
}

// updated processes a changed pod: it was placed, runs or has ended.
func (t *podTracker) updated(old, pod *corev1.Pod) {
	switch {
	case pod.Spec.NodeName == "":
	case old.Spec.NodeName == "" || ended(pod):
		t.added(pod)
	case runningSince(old).IsZero():
		if since := runningSince(pod); !since.IsZero() {
			t.cluster.entry(pod.Spec.NodeName).change(t.cluster.clock.Now(), func(a *nodeload.Arrivals) bool {
				return a.Start(string(pod.UID), since)
			})
		}
	}
}

// deleted processes the end of a pod: the load of its node contains it for some time.
func (t *podTracker) deleted(pod *corev1.Pod) {
	node := pod.Spec.NodeName
	reservedNode, reserved := t.reserved.Load(pod.UID)
	if reserved || node == "" {
		// The API server never showed it on the node, so it is assumed not to have run.
		t.remove(pod.UID, cmp.Or(node, reservedNode))
		return
	}

	t.rejected.Delete(pod.UID)
	e, ok := t.cluster.entries.Load(node)
	if !ok {
		return
	}

	credit := nodeload.DepartureCredit(podRequest(pod), t.history.Use(WorkloadOf(pod)), t.share())
	now := t.cluster.clock.Now()
	e.(*entry).change(now, func(a *nodeload.Arrivals) bool {
		return a.End(string(pod.UID), credit, startOf(pod), endOf(pod, now))
	})
}

// remove removes a pod from the given node and from the one that it was reserved for: the last state of a pod from
// an informer may be older than its placement.
func (t *podTracker) remove(pod types.UID, node string) {
	if reservedNode, reserved := t.reserved.Load(pod); reserved && reservedNode != node {
		t.leave(pod, reservedNode)
	}

	t.reserved.Delete(pod)
	t.rejected.Delete(pod)

	if node != "" {
		t.leave(pod, node)
	}
}

func (t *podTracker) leave(pod types.UID, node string) {
	e, ok := t.cluster.entries.Load(node)
	if !ok {
		return
	}

	e.(*entry).change(t.cluster.clock.Now(), func(a *nodeload.Arrivals) bool { return a.Remove(string(pod)) })
}

func (t *podTracker) share() nodeload.Share {
	if last := t.cluster.last.Load(); last != nil {
		return last.Share
	}

	return nodeload.DefaultShare()
}

// handler forwards informer events.
func (t *podTracker) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				t.added(pod)
			}
		},
		UpdateFunc: func(before, after any) {
			old, oldOK := before.(*corev1.Pod)
			pod, podOK := after.(*corev1.Pod)
			if oldOK && podOK {
				t.updated(old, pod)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				t.deleted(pod)
			}
		},
	}
}

func (t *podTracker) estimate(pod *corev1.Pod, share nodeload.Share) (nodeload.Amount, nodeload.Basis) {
	return nodeload.Estimate(podRequest(pod), t.history.Use(WorkloadOf(pod)), share)
}

// wasClosed reports whether the node was closed in the last attempt of the pod, or later for another. It is true for
// an unknown pod: an unneeded retry costs a cycle, a missed one five minutes.
func (t *podTracker) wasClosed(pod *corev1.Pod, node string) bool {
	last, ok := t.rejected.Load(pod.UID)
	if !ok {
		return true
	}

	e, seen := t.cluster.entries.Load(node)
	return seen && e.(*entry).closedBy.Load() >= last.attempt
}
