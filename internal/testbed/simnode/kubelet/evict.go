// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// pressure is the node's memory pressure. It stays active for Timing.PressureHold after the last excess.
type pressure struct {
	active bool
	since  time.Time
	seen   time.Time
}

// Pressure reports whether the node is under memory pressure and the time of the last change.
func (n *Node) Pressure() (active bool, since time.Time) { return n.pressure.active, n.pressure.since }

// relieve compares the working set of all containers with the allocatable memory and evicts the first-ranked pod if it
// is exceeded. It evicts one pod per sample, like the kubelet, so that the next sample includes the effect.
func (n *Node) relieve(total float64, now time.Time) {
	if total > float64(n.allocatable.Memory().Value()) {
		if !n.pressure.active {
			n.pressure.active = true
			n.pressure.since = now
			n.events = append(n.events, Event{
				Type: corev1.EventTypeWarning, Reason: "EvictionThresholdMet",
				Message: "Attempting to reclaim memory",
			})
		}

		n.pressure.seen = now
		n.evictOne(now)
		return
	}

	if n.pressure.active && now.Sub(n.pressure.seen) >= n.timing.PressureHold {
		n.pressure.active = false
		n.pressure.since = now
	}
}

// candidate is a pod that may be evicted, with its ranking.
type candidate struct {
	r       *record
	use     float64
	request float64
	worst   *container
}

// evictOne evicts the pod that ranks first: use above request before others, then low priority, then the largest use
// above request (kubelet: exceedMemoryRequests, priority, memory).
func (n *Node) evictOne(now time.Time) {
	var list []candidate
	for _, r := range n.pods {
		if c, ok := candidateOf(r); ok {
			list = append(list, c)
		}
	}

	if len(list) == 0 {
		return
	}

	// The UID makes the choice deterministic.
	first := slices.MinFunc(list, func(a, b candidate) int {
		return cmp.Or(
			-boolCompare(a.use > a.request, b.use > b.request),
			cmp.Compare(priority(a.r.pod), priority(b.r.pod)),
			cmp.Compare(b.use-b.request, a.use-a.request),
			cmp.Compare(a.r.uid(), b.r.uid()),
		)
	})

	message := "The node was low on resource: memory. "
	if c := first.worst; c != nil {
		request := c.allocated.Requests[corev1.ResourceMemory]
		message += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of memory. ",
			c.name, resource.NewQuantity(int64(c.meter.use.Memory), resource.BinarySI), request.String())
	}

	n.eventf(first.r, corev1.EventTypeWarning, reasonEvicted, "%s", message)
	first.r.fail(verdict{reason: reasonEvicted, message: message, disruption: true}, now)
	n.dirty[first.r.uid()] = true
	n.retryResizes()
}

// candidateOf returns the ranking of a pod; critical, terminating and unmeasured pods are excluded.
func candidateOf(r *record) (candidate, bool) {
	if !r.active() || !r.killAt.IsZero() || critical(r.pod) {
		return candidate{}, false
	}

	request := r.requests[corev1.ResourceMemory]
	out := candidate{r: r, request: request.AsApproximateFloat64()}
	measured := false
	largestExcess := 0.0

	for _, c := range r.list {
		if c.phase != running || !c.meter.use.Known {
			continue
		}

		measured = true
		out.use += c.meter.use.Memory
		q := c.allocated.Requests[corev1.ResourceMemory]
		if excess := c.meter.use.Memory - q.AsApproximateFloat64(); excess > largestExcess {
			largestExcess = excess
			out.worst = c
		}
	}

	return out, measured
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}
