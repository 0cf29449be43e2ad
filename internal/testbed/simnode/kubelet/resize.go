// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// admitted lists the resources that admission sums up.
var admitted = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// retryResizes schedules another attempt of every deferred resize.
func (n *table) retryResizes() {
	for uid, r := range n.pods {
		if r.pending != nil && r.pending.reason == corev1.PodReasonDeferred {
			n.dirty[uid] = true
		}
	}
}

// resizer resizes pods in place.
type resizer struct{ *table }

// resize advances the pod's in-place resize as far as currently possible: admission, then application.
func (n *resizer) resize(r *record, now time.Time) {
	if !r.wantsResize() {
		r.pending = nil
	} else {
		n.admitResizes(now)
	}

	n.applyResize(r, now)
}

// wantsResize reports whether the spec's resources differ from the admitted ones.
func (r *record) wantsResize() bool {
	for _, c := range r.list {
		if c.resizable() && !equality.Semantic.DeepEqual(r.spec(c).Resources, c.allocated) {
			return true
		}
	}

	return false
}

// wanted returns the resources that the container has if the resize is admitted.
func (r *record) wanted(c *container) corev1.ResourceRequirements {
	if !c.resizable() {
		return c.allocated
	}

	return r.spec(c).Resources
}

// admitResizes attempts all pending resizes of the node in the kubelet's order: decreases first, then by priority,
// Guaranteed before others, then the longest wait.
func (n *resizer) admitResizes(now time.Time) {
	var list []*record
	increase := map[*record]bool{}
	for _, r := range n.pods {
		if r.active() && r.killAt.IsZero() && r.sandbox && r.wantsResize() {
			list = append(list, r)
			increase[r] = r.increases()
		}
	}

	slices.SortFunc(list, func(a, b *record) int {
		return cmp.Or(
			boolCompare(increase[a], increase[b]),
			cmp.Compare(priority(b.pod), priority(a.pod)),
			-boolCompare(guaranteed(a.pod), guaranteed(b.pod)),
			a.waitingSince(now).Compare(b.waitingSince(now)),
			cmp.Compare(a.uid(), b.uid()),
		)
	})

	for _, r := range list {
		n.admitResize(r, now)
	}
}

func guaranteed(pod *corev1.Pod) bool { return pod.Status.QOSClass == corev1.PodQOSGuaranteed }

// increases reports whether the pod's resize raises its requests.
func (r *record) increases() bool {
	want := r.podRequests(r.wanted)
	return want.Cpu().Cmp(*r.requests.Cpu()) > 0 || want.Memory().Cmp(*r.requests.Memory()) > 0
}

func (r *record) waitingSince(now time.Time) time.Time {
	if r.pending == nil {
		return now
	}

	return r.pending.since
}

// admitResize admits one resize or sets its condition. An infeasible one is not retried until the spec changes.
func (n *resizer) admitResize(r *record, now time.Time) {
	if r.pending != nil && r.pending.reason == corev1.PodReasonInfeasible && r.pending.generation == r.pod.Generation {
		return
	}

	want := r.podRequests(r.wanted)
	if reason := n.infeasible(r, want); reason != "" {
		n.postpone(r, corev1.PodReasonInfeasible, reason, now)
		return
	}

	if short := n.fits(r, want); short != nil {
		n.postpone(r, corev1.PodReasonDeferred, short.String(), now)
		return
	}

	for _, c := range r.list {
		want := r.wanted(c)
		c.allocated = *want.DeepCopy()
		if c.phase != running {
			c.actual = c.allocated
		}
	}

	// Freed resources may admit resizes that were deferred.
	shrinks := want.Cpu().Cmp(*r.requests.Cpu()) < 0 || want.Memory().Cmp(*r.requests.Memory()) < 0
	r.requests = want
	r.pending = nil
	r.progress = &resizeState{generation: r.pod.Generation, since: now}
	r.applyAt = now.Add(n.timing.Resize)
	n.eventf(r, corev1.EventTypeNormal, "ResizeStarted", "Pod resize started: generation %d", r.pod.Generation)

	n.dirty[r.uid()] = true
	if shrinks {
		n.retryResizes()
	}
}

// infeasible returns the reason why a resize can never be performed on this node, or empty.
func (n *resizer) infeasible(r *record, want corev1.ResourceList) string {
	if n.spec.StaticCPU && guaranteed(r.pod) && want.Cpu().Cmp(*r.requests.Cpu()) != 0 {
		return "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\""
	}

	for _, name := range admitted {
		q := want[name]
		total := n.allocatable[name]
		if q.Cmp(total) > 0 {
			return fmt.Sprintf("Node didn't have enough capacity: %s, requested: %s, capacity: %s", name, q.String(), total.String())
		}
	}

	return ""
}

// postpone sets the PodResizePending condition and records an event once.
func (n *resizer) postpone(r *record, reason, message string, now time.Time) {
	old := r.pending
	r.pending = &resizeState{
		reason:     reason,
		message:    message,
		generation: r.pod.Generation,
		since:      now,
	}

	if old != nil && old.reason == reason {
		r.pending.since = old.since
		if old.message == message && old.generation == r.pod.Generation {
			return
		}
	}

	n.dirty[r.uid()] = true
	if old == nil || old.reason != reason || old.generation != r.pod.Generation {
		n.eventf(r, corev1.EventTypeWarning, "Resize"+reason, "Pod resize %s: %s, generation %d", reason, message, r.pod.Generation)
	}
}

// applyResize applies admitted resources once they are due. If a memory limit is below the current use, nothing of the
// pod's resize is applied; it is retried with the next sample.
func (n *resizer) applyResize(r *record, now time.Time) {
	if r.progress == nil || now.Before(r.applyAt) {
		return
	}

	// All or nothing: a container whose limit cannot shrink yet holds back the whole pod.
	r.applyAt = time.Time{}
	for _, c := range r.list {
		if c.phase == running && !restartsFor(r.spec(c), c, corev1.ResourceMemory) {
			if reason := shrinkBelowUse(c); reason != "" {
				n.resizeError(r, reason, now)
				return
			}
		}
	}

	for _, c := range r.list {
		if c.phase != running || equality.Semantic.DeepEqual(c.actual, c.allocated) {
			continue
		}

		if restartsFor(r.spec(c), c, corev1.ResourceMemory) || restartsFor(r.spec(c), c, corev1.ResourceCPU) {
			n.eventf(r, corev1.EventTypeNormal, "Killing", "Container %s resize requires restart", c.name)
			c.stop(143, "Error", now)
			c.restartAt = now.Add(n.timing.Restart)
			continue
		}

		c.actual = c.allocated
	}

	n.eventf(r, corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed: generation %d", r.progress.generation)
	r.progress = nil
}

// shrinkBelowUse describes a memory limit below the last known use, or returns empty.
func shrinkBelowUse(c *container) string {
	limit, ok := c.allocated.Limits[corev1.ResourceMemory]
	if !ok || !c.meter.use.Known {
		return ""
	}

	if old, limited := c.actual.Limits[corev1.ResourceMemory]; limited && old.Cmp(limit) <= 0 {
		return ""
	}

	if c.meter.use.Memory < limit.AsApproximateFloat64() {
		return ""
	}

	return fmt.Sprintf("cannot decrease memory limits: attempting to set container %q memory limit (%d) below current usage (%.0f)",
		c.name, limit.Value(), c.meter.use.Memory)
}

func (n *resizer) resizeError(r *record, reason string, now time.Time) {
	since := r.progress.since
	if r.progress.reason != corev1.PodReasonError {
		since = now
		n.eventf(r, corev1.EventTypeWarning, "ResizeError", "Pod resize error: %s, generation %d", reason, r.progress.generation)
	}

	r.progress = &resizeState{
		reason:     corev1.PodReasonError,
		message:    reason,
		generation: r.progress.generation,
		since:      since,
	}
}

// restartsFor reports whether the container's resize policy requires a restart for a change of this resource.
func restartsFor(spec *corev1.Container, c *container, name corev1.ResourceName) bool {
	oldRequest := c.actual.Requests[name]
	newRequest := c.allocated.Requests[name]
	oldLimit := c.actual.Limits[name]
	newLimit := c.allocated.Limits[name]

	if oldRequest.Cmp(newRequest) == 0 && oldLimit.Cmp(newLimit) == 0 {
		return false
	}

	for _, p := range spec.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == corev1.RestartContainer
		}
	}

	return false
}
