// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/pkg/nodeload"
)

// holdIndex holds the evicted pods for whose replacements nodes hold load, by UID. Rebalancing moves few pods at once,
// so that it is small and mostly empty.
type holdIndex struct {
	size atomic.Int64
	mu   sync.Mutex
	pods map[string]heldPod // guarded by mu
}

type heldPod struct {
	workload string
	entry    *entry
	until    time.Time
}

func (x *holdIndex) add(h nodeload.Hold, e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()

	if x.pods == nil {
		x.pods = map[string]heldPod{}
	}

	x.pods[h.Pod] = heldPod{workload: h.Workload, entry: e, until: h.Until}
	x.size.Store(int64(len(x.pods)))
}

func (x *holdIndex) remove(pod string) {
	x.mu.Lock()
	defer x.mu.Unlock()

	delete(x.pods, pod)
	x.size.Store(int64(len(x.pods)))
}

// take removes and returns the pods of a workload, and drops those whose hold has ended, such as on deleted nodes.
func (x *holdIndex) take(workload string, now time.Time) map[string]*entry {
	x.mu.Lock()
	defer x.mu.Unlock()

	out := map[string]*entry{}
	for pod, h := range x.pods {
		if h.workload == workload {
			out[pod] = h.entry
		}
		if h.workload == workload || !now.Before(h.until) {
			delete(x.pods, pod)
		}
	}

	x.size.Store(int64(len(x.pods)))
	return out
}

// holdKey is the key of a hold among arriving pods.
func holdKey(pod string) string { return "hold/" + pod }

// readHolds adds the holds of a node to its arriving pods, and removes those that have ended; the caller holds mu. A
// released hold does not return while its annotation is still there. An invalid annotation has no holds.
func (e *entry) readHolds(index *holdIndex, object *corev1.Node, now time.Time) {
	text := object.Annotations[nodeload.HoldsKey]
	if text == "" && len(e.holds) == 0 {
		return
	}

	holds, _ := nodeload.ParseHolds(text)
	listed := map[string]time.Time{}
	for _, h := range nodeload.ValidHolds(holds, now) {
		listed[h.Pod] = h.Until
		if _, indexed := e.holds[h.Pod]; !indexed {
			e.arrivals.Add(holdKey(h.Pod), h.Use(), time.Time{})
			index.add(h, e)
		}
	}

	for pod := range e.holds {
		if _, still := listed[pod]; !still {
			e.arrivals.Remove(holdKey(pod))
			index.remove(pod)
		}
	}

	e.holds = listed
}

// expireHolds removes the holds that have ended by time, which causes no event; the caller holds mu. The annotation is
// removed later, and the scheduler may ask about that change before the node is read again.
func (e *entry) expireHolds(now time.Time) {
	for pod, until := range e.holds {
		if !now.Before(until) {
			e.arrivals.Remove(holdKey(pod))
		}
	}
}

// releaseHolds ends the holds for the workload of a pod that is about to be tried: the room is for it.
func (c *cluster) releaseHolds(pod *corev1.Pod) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return
	}

	now := c.clock.Now()
	for evicted, e := range c.reader.holds.take(pod.Namespace+"/"+owner.Kind+"/"+owner.Name, now) {
		e.change(now, func(a *nodeload.Arrivals) bool { return a.Remove(holdKey(evicted)) })
	}
}
