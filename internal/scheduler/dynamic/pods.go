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

// PodAdded processes an existing pod. Pods placed by other schedulers become pending load, except those that run for
// so long that every metric contains them. The pod informer calls it, PodUpdated and PodDeleted, or the driver of a
// plugin without an informer.
func (p *Plugin) PodAdded(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	if ended(pod) {
		p.ended(pod)
		return
	}
	p.reserved.Delete(pod.UID)
	p.rejected.Delete(pod.UID)
	now, since := p.clock.Now(), runningSince(pod)
	switch {
	case since.IsZero():
		use, _ := p.estimate(pod, p.share())
		p.placed(pod.Spec.NodeName, string(pod.UID), use)
	case now.Sub(since) < p.rules.Load().Horizon():
		use, _ := p.estimate(pod, p.share())
		p.raise(p.entry(pod.Spec.NodeName).change(now, func(a *nodeload.Arrivals) bool {
			if a.Has(string(pod.UID)) {
				return a.Start(string(pod.UID), since)
			}
			a.Add(string(pod.UID), use, since)
			return true
		}))
	}
}

// PodUpdated processes a changed pod: it was placed, runs or has ended.
func (p *Plugin) PodUpdated(old, pod *corev1.Pod) {
	switch {
	case pod.Spec.NodeName == "":
	case old.Spec.NodeName == "" || ended(pod):
		p.PodAdded(pod)
	case runningSince(old).IsZero():
		if since := runningSince(pod); !since.IsZero() {
			p.entry(pod.Spec.NodeName).change(p.clock.Now(), func(a *nodeload.Arrivals) bool {
				return a.Start(string(pod.UID), since)
			})
		}
	}
}

// PodDeleted processes the end of a pod: the load of its node contains it for some time.
func (p *Plugin) PodDeleted(pod *corev1.Pod) { p.ended(pod) }

func (p *Plugin) ended(pod *corev1.Pod) {
	node := pod.Spec.NodeName
	if on, was := p.reserved.Load(pod.UID); was || node == "" {
		// The API server never showed it on the node, so it is assumed not to have run.
		p.removePod(pod.UID, cmp.Or(node, on))
		return
	}
	p.rejected.Delete(pod.UID)
	e, known := p.entries.Load(node)
	if !known {
		return
	}
	credit := nodeload.DepartureCredit(podRequest(pod), p.history.Use(WorkloadOf(pod)), p.share())
	now := p.clock.Now()
	e.(*entry).change(now, func(a *nodeload.Arrivals) bool {
		return a.End(string(pod.UID), credit, startOf(pod), endOf(pod, now))
	})
}

// removePod removes a pod from the given node and from the one that it was reserved for: the last state of a pod from
// an informer may be older than its placement.
func (p *Plugin) removePod(pod types.UID, node string) {
	if on, was := p.reserved.Load(pod); was && on != node {
		p.leave(pod, on)
	}
	p.reserved.Delete(pod)
	p.rejected.Delete(pod)
	if node != "" {
		p.leave(pod, node)
	}
}

func (p *Plugin) leave(pod types.UID, node string) {
	e, known := p.entries.Load(node)
	if !known {
		return
	}
	e.(*entry).change(p.clock.Now(), func(a *nodeload.Arrivals) bool { return a.Remove(string(pod)) })
}

func (p *Plugin) share() nodeload.Share {
	if last := p.last.Load(); last != nil {
		return last.Share
	}
	return nodeload.DefaultShare()
}

// podHandler forwards informer events.
func (p *Plugin) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				p.PodAdded(pod)
			}
		},
		UpdateFunc: func(before, after any) {
			old, was := before.(*corev1.Pod)
			pod, is := after.(*corev1.Pod)
			if was && is {
				p.PodUpdated(old, pod)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				p.PodDeleted(pod)
			}
		},
	}
}
