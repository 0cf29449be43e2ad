// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// criticalPriority is system-cluster-critical, the lowest priority of pods that the kubelet does not evict.
const criticalPriority = 2_000_000_000

// reasonEvicted is the kubelet's reason for pods that memory pressure terminated or rejected.
const reasonEvicted = "Evicted"

// admit admits or rejects a new pod, with the kubelet's reasons.
func (n *Node) admit(r *record, now time.Time) {
	r.allocate()
	if r.pod.DeletionTimestamp != nil {
		r.finished = true
		return
	}

	if n.pressure.active && r.pod.Status.QOSClass == corev1.PodQOSBestEffort && !toleratesPressure(r.pod) && !critical(r.pod) {
		n.reject(r, reasonEvicted, "The node had condition: [MemoryPressure]. ")
		return
	}

	if short := n.fits(r, r.requests); short != nil {
		n.reject(r, "OutOf"+string(short.resource), short.String())
		return
	}

	r.sandboxAt = now.Add(n.timing.Create)
}

// reject fails a pod permanently.
func (n *Node) reject(r *record, reason, message string) {
	r.failed = &verdict{reason: reason, message: "Pod was rejected: " + message}
	n.eventf(r, corev1.EventTypeWarning, reason, "%s", message)
}

func toleratesPressure(pod *corev1.Pod) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == "" || t.Key == corev1.TaintNodeMemoryPressure) && (t.Operator == corev1.TolerationOpExists || t.Value == "") &&
			(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule) {
			return true
		}
	}

	return false
}

func critical(pod *corev1.Pod) bool { return priority(pod) >= criticalPriority }

func priority(pod *corev1.Pod) int32 { return ptr.Deref(pod.Spec.Priority, 0) }

// adopt restores a pod that ran here before a restart of the simulation from its status. A wait for a restart ends
// immediately. It returns false for a pod that the node had not admitted.
func adopt(r *record, now time.Time) bool {
	status := &r.pod.Status
	if status.StartTime == nil {
		return false
	}

	r.arrival = status.StartTime.Time
	r.sandboxAt = now
	r.ip = status.PodIP
	r.sandbox = r.ip != "" || r.pod.Spec.HostNetwork && len(status.ContainerStatuses) > 0

	// The status is all that is left of the earlier simulation: restore each container from it.
	byName := map[string]*corev1.ContainerStatus{}
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			byName[list[i].Name] = &list[i]
		}
	}

	for _, c := range r.list {
		if s, ok := byName[c.name]; ok {
			adoptContainer(c, s, now)
		}
	}

	r.status = keepOwned(status)
	adoptResize(r)

	for _, c := range r.list {
		if c.phase == exited && !c.completed() && r.restarts(c, c.ended.ExitCode) {
			c.restartAt = now
		}
	}

	switch status.Phase {
	case corev1.PodFailed:
		if status.Reason != "" {
			r.failed = &verdict{reason: status.Reason, message: status.Message}
		}
		r.finished = true

	case corev1.PodSucceeded:
		r.finished = true
	}

	return true
}

// adoptContainer restores one container's record from its status.
func adoptContainer(c *container, s *corev1.ContainerStatus, now time.Time) {
	c.id = s.ContainerID
	c.restarts = s.RestartCount
	c.ready = s.Ready
	c.last = s.LastTerminationState.Terminated

	switch {
	case s.State.Running != nil:
		c.phase = running
		c.startedAt = s.State.Running.StartedAt.Time
		c.readyAt = now
		c.meter.at = now // The use before the restart is not known again, so the counters start at zero, as after a reboot.

	case s.State.Terminated != nil:
		c.phase = exited
		c.ended = s.State.Terminated
	case s.State.Waiting != nil && c.last != nil:
		c.phase = exited
		c.ended = c.last
		c.last = nil
		c.looping = true
	}

	if c.ended != nil && c.ended.Reason == reasonOOM || c.last != nil && c.last.Reason == reasonOOM {
		c.oomKills = 1
	}
}

// adoptResize restores allocated and actual resources and the resize conditions.
func adoptResize(r *record) {
	for i := range r.pod.Status.Conditions {
		c := &r.pod.Status.Conditions[i]
		s := &resizeState{
			reason:     c.Reason,
			message:    c.Message,
			generation: c.ObservedGeneration,
			since:      c.LastTransitionTime.Time,
		}

		switch c.Type {
		case corev1.PodResizePending:
			r.pending = s
		case corev1.PodResizeInProgress:
			r.progress = s
		}
	}

	// A pending resize is not admitted: what is in effect is also allocated.
	pending := r.pending != nil

	status := map[string]*corev1.ResourceRequirements{}
	for _, list := range [][]corev1.ContainerStatus{r.pod.Status.InitContainerStatuses, r.pod.Status.ContainerStatuses} {
		for i := range list {
			status[list[i].Name] = list[i].Resources
		}
	}

	for _, c := range r.list {
		c.allocated = *r.spec(c).Resources.DeepCopy()
		c.actual = c.allocated
		if s := status[c.name]; s != nil {
			c.actual = *s.DeepCopy()
			if pending {
				c.allocated = c.actual
			}
		}
	}

	r.requests = r.podRequests(func(c *container) corev1.ResourceRequirements { return c.allocated })
}

// addresses allocates the pod addresses of one node from a /24. They are not routed.
type addresses struct {
	prefix string
	used   map[string]bool
	next   int
}

func newAddresses(prefix string) *addresses {
	return &addresses{prefix: prefix, used: map[string]bool{}, next: 2}
}

func (a *addresses) take(ip string) {
	if strings.HasPrefix(ip, a.prefix) {
		a.used[ip] = true
	}
}

func (a *addresses) release(ip string) { delete(a.used, ip) }

// get returns a free address, or none when all 253 are taken.
func (a *addresses) get() string {
	for range 253 {
		ip := a.prefix + strconv.Itoa(a.next)
		a.next++

		if a.next > 254 {
			a.next = 2
		}

		if !a.used[ip] {
			a.used[ip] = true
			return ip
		}
	}

	return ""
}
