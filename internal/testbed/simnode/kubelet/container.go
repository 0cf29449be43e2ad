// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// run advances one container: start, readiness, exit, restart.
func (n *lifecycle) run(r *record, c *container, now time.Time) {
	// A container may restart, exit and become ready in one step if all of it is due.
	if c.phase == exited && !c.restartAt.IsZero() && !now.Before(c.restartAt) {
		c.restarts++
		c.last = c.ended
		c.ended = nil
		n.start(r, c, now)
	}

	if c.phase == waiting {
		n.start(r, c, now)
	}

	if c.phase != running {
		return
	}

	if !c.exitAt.IsZero() && !now.Before(c.exitAt) {
		reason := "Completed"
		if c.exitCode != 0 {
			reason = "Error"
		}

		n.exit(r, c, c.exitCode, reason, now)
		return
	}

	if !c.ready && !now.Before(c.readyAt) {
		c.ready = true
	}
}

// start starts a run of the container.
func (n *lifecycle) start(r *record, c *container, now time.Time) {
	c.phase = running
	c.startedAt = now
	c.restartAt = time.Time{}
	c.looping = false
	c.id = containerID(r.uid(), c.name, c.restarts)
	c.actual = c.allocated
	c.meter = meter{}
	c.ready = false
	n.plan(r, c)
	n.eventf(r, corev1.EventTypeNormal, "Started", "Container started: %s", c.name)
}

// replan sets the ends of runs that were restored from a status.
func (n *lifecycle) replan(r *record) {
	for _, c := range r.list {
		if c.phase == running {
			readyAt := c.readyAt
			n.plan(r, c)
			c.readyAt = readyAt
		}
	}
}

// plan sets when a run that started at startedAt becomes ready and when it exits.
func (n *lifecycle) plan(r *record, c *container) {
	c.exitAt = time.Time{}
	c.exitCode = 0

	// Only containers of apps exit by annotation; sidecars run as long as the pod.
	switch c.kind {
	case initContainer:
		c.exitAt = c.startedAt.Add(n.timing.Init)
		c.readyAt = time.Time{}
		return

	case sidecar:
		c.readyAt = c.startedAt

	case appContainer:
		probed := time.Duration(0)
		if r.spec(c).ReadinessProbe != nil {
			probed = n.timing.Ready
		}

		c.readyAt = c.startedAt.Add(n.annotated(r, AnnotationReadyAfter, probed))
		batch := time.Duration(0)
		if owner := metav1.GetControllerOf(r.pod); owner != nil && owner.Kind == "Job" {
			batch = n.timing.Job
		}

		if d := n.annotated(r, AnnotationDuration, batch); d > 0 {
			c.exitAt = c.startedAt.Add(d)
			c.exitCode = n.exitCode(r)
		}
	}
}

// annotated returns the duration of a pod's annotation, or the default.
func (n *lifecycle) annotated(r *record, key string, def time.Duration) time.Duration {
	value, ok := r.pod.Annotations[key]
	if !ok {
		return def
	}

	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		n.eventf(r, corev1.EventTypeWarning, "InvalidAnnotation", "%s: %q is not a duration of at least 0, %v is used", key, value, def)
		return def
	}

	return d
}

func (n *lifecycle) exitCode(r *record) int32 {
	value, ok := r.pod.Annotations[AnnotationExitCode]
	if !ok {
		return 0
	}

	code, err := strconv.ParseUint(value, 10, 8)
	if err != nil {
		n.eventf(r, corev1.EventTypeWarning, "InvalidAnnotation", "%s: %q is not in 0..255, 0 is used", AnnotationExitCode, value)
		return 0
	}

	return int32(code)
}

// exit ends a run and schedules a restart according to the restart policy.
func (n *lifecycle) exit(r *record, c *container, code int32, reason string, now time.Time) {
	ran := now.Sub(c.startedAt)
	c.stop(code, reason, now)

	if !r.restarts(c, code) {
		return
	}

	if ran >= n.timing.BackOffReset {
		c.backOff = 0
	}

	if c.backOff == 0 {
		c.restartAt = now.Add(n.timing.Restart)
		c.backOff = n.timing.BackOff
		return
	}

	c.restartAt = now.Add(c.backOff)
	c.looping = true
	n.eventf(r, corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s_%s(%s)",
		c.name, r.pod.Name, r.pod.Namespace, r.pod.UID)
	c.backOff = min(2*c.backOff, n.timing.BackOffMax)
}

// restarts reports whether the restart policy restarts the container after it exited with the code.
func (r *record) restarts(c *container, code int32) bool {
	policy := r.pod.Spec.RestartPolicy
	switch c.kind {
	case sidecar:
		return true
	case initContainer:
		return code != 0 && policy != corev1.RestartPolicyNever
	default:
		return policy == corev1.RestartPolicyAlways || policy == "" || policy == corev1.RestartPolicyOnFailure && code != 0
	}
}

// stop records the end of a run; the container stays down until restartAt is set.
func (c *container) stop(code int32, reason string, now time.Time) {
	c.phase = exited
	c.ready = false
	c.restartAt = time.Time{}
	c.looping = false

	c.ended = &corev1.ContainerStateTerminated{
		ExitCode:    code,
		Reason:      reason,
		ContainerID: c.id,
		StartedAt:   stamp(c.startedAt),
		FinishedAt:  stamp(now),
	}

	c.actual = c.allocated
}
