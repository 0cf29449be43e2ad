// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Event is an event about a pod, or about the node if Pod is nil.
type Event struct {
	Pod                   *corev1.Pod
	Type, Reason, Message string
}

// Outcome is the result of a step.
type Outcome struct {
	// Pod is the pod with its new status; nil if the node does not have the pod.
	Pod *corev1.Pod
	// Remove means that the pod has terminated and its object may be deleted.
	Remove bool
	// Wake is the time of the pod's next step; zero if only external changes cause one.
	Wake time.Time
}

// table has the pods of a node and what changed about them.
type table struct {
	spec        NodeSpec
	timing      Timing
	allocatable corev1.ResourceList

	pods   map[types.UID]*record
	events []Event
	dirty  map[types.UID]bool
}

// Node is one simulated node with its pods.
type Node struct {
	*table
	life     lifecycle
	resizes  resizer
	pressure pressure

	startedAt, sampledAt time.Time
	cpuSeconds           float64
}

// NewNode returns an empty node. The prefix is the first 24 bits of the addresses of its pods, like "10.192.3.".
func NewNode(spec NodeSpec, timing Timing, hostIP, prefix string) *Node {
	t := &table{
		spec:        spec,
		timing:      timing,
		allocatable: spec.Allocatable(),
		pods:        map[types.UID]*record{},
		dirty:       map[types.UID]bool{},
	}

	return &Node{table: t, life: lifecycle{table: t, hostIP: hostIP, ips: newAddresses(prefix)}, resizes: resizer{table: t}}
}

// Spec returns the node's specification.
func (n *Node) Spec() NodeSpec { return n.spec }

// Observe processes a new or changed pod bound to this node. A new pod that has already run here (before a restart of
// the simulation) is restored from its status.
func (n *Node) Observe(pod *corev1.Pod, now time.Time) {
	r, ok := n.pods[pod.UID]
	if ok {
		r.observe(pod)
		return
	}

	r = newRecord(pod, now)
	n.pods[pod.UID] = r
	if adopt(r, now) {
		n.life.ips.take(r.ip)
		n.life.replan(r)
		return
	}

	n.admit(r, now)
}

// Forget drops a pod whose object has been deleted and schedules pods that wait for resources.
func (n *Node) Forget(uid types.UID) {
	r, ok := n.pods[uid]
	if !ok {
		return
	}

	n.life.ips.release(r.ip)
	delete(n.pods, uid)
	delete(n.dirty, uid)
	n.retryResizes()
}

// Step updates one pod to its spec and to the time.
func (n *Node) Step(uid types.UID, now time.Time) Outcome {
	r, ok := n.pods[uid]
	if !ok {
		return Outcome{}
	}

	wasActive := r.active()
	n.life.advance(r, now)

	if r.active() && r.sandbox && r.killAt.IsZero() {
		n.resizes.resize(r, now)
	}
	if wasActive && !r.active() {
		n.retryResizes()
	}

	render(r, n.life.hostIP, now)
	out := Outcome{Pod: r.current(), Wake: r.wake()}
	out.Remove = r.pod.DeletionTimestamp != nil && !r.active()

	return out
}

// Events returns and clears the recorded events.
func (n *table) Events() []Event {
	events := n.events
	n.events = nil
	return events
}

// Dirty returns and clears the pods that need a step because their environment changed, in a stable order.
func (n *table) Dirty() []*corev1.Pod {
	if len(n.dirty) == 0 {
		return nil
	}

	pods := make([]*corev1.Pod, 0, len(n.dirty))
	for uid := range n.dirty {
		if r, ok := n.pods[uid]; ok {
			pods = append(pods, r.pod)
		}
	}

	clear(n.dirty)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}

// Pods returns all pods of the node with their statuses, ordered by namespace and name. They are shared and must not be
// modified.
func (n *table) Pods() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(n.pods))
	for _, r := range n.pods {
		pods = append(pods, r.current())
	}

	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return pods
}

func (n *table) eventf(r *record, kind, reason, format string, args ...any) {
	n.events = append(n.events, Event{
		Pod:     r.pod,
		Type:    kind,
		Reason:  reason,
		Message: fmt.Sprintf(format, args...),
	})
}

// shortage is the first resource of which a pod requests too much.
type shortage struct {
	resource                  corev1.ResourceName
	requested, used, capacity int64
}

func (s shortage) String() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		s.resource, s.requested, s.used, s.capacity)
}

// fits compares the pod's requests with the resources that other active pods of the node leave.
func (n *table) fits(r *record, requests corev1.ResourceList) *shortage {
	// Terminating pods count until they have ended.
	used := corev1.ResourceList{}

	count := int64(0)
	for _, other := range n.pods {
		if other == r || !other.active() {
			continue
		}

		count++
		for _, name := range admitted {
			sum := used[name]
			sum.Add(other.requests[name])
			used[name] = sum
		}
	}

	if pods := n.allocatable.Pods().Value(); count+1 > pods {
		return &shortage{
			resource:  corev1.ResourcePods,
			requested: 1,
			used:      count,
			capacity:  pods,
		}
	}

	for _, name := range admitted {
		want := requests[name]
		inUse := used[name]
		total := n.allocatable[name]
		sum := inUse.DeepCopy()
		sum.Add(want)

		if !want.IsZero() && sum.Cmp(total) > 0 {
			if name == corev1.ResourceCPU {
				return &shortage{name, want.MilliValue(), inUse.MilliValue(), total.MilliValue()}
			}

			return &shortage{name, want.Value(), inUse.Value(), total.Value()}
		}
	}

	return nil
}
