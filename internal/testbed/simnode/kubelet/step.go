// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lifecycle runs the containers of pods.
type lifecycle struct {
	*table
	hostIP string
	ips    *addresses
}

// advance performs every transition of the pod that is due.
func (n *lifecycle) advance(r *record, now time.Time) {
	if !r.active() {
		return
	}

	if r.pod.DeletionTimestamp != nil {
		n.terminate(r, now)
		return
	}

	if d := r.pod.Spec.ActiveDeadlineSeconds; d != nil && !now.Before(r.arrival.Add(time.Duration(*d)*time.Second)) {
		r.fail(verdict{reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline"}, now)
		return
	}

	if !n.openSandbox(r, now) {
		return
	}

	if !n.runInit(r, now) {
		return
	}

	// The pod is complete once no container of the app runs or will restart.
	alive := false
	for _, c := range r.list {
		if c.kind != appContainer {
			continue
		}

		n.run(r, c, now)
		alive = alive || c.phase != exited || !c.restartAt.IsZero()
	}

	if !alive {
		r.complete(now)
	}
}

// openSandbox creates the pod's sandbox when due and reports whether it exists.
func (n *lifecycle) openSandbox(r *record, now time.Time) bool {
	if r.sandbox {
		return true
	}

	if now.Before(r.sandboxAt) {
		return false
	}

	if r.pod.Spec.HostNetwork {
		r.ip = n.hostIP
	} else if r.ip == "" {
		r.ip = n.ips.get()
	}

	r.sandbox = true
	return true
}

// runInit runs the init containers in order and keeps the sidecars running. It returns true when the app containers may
// run. Once an app container has started, it only manages sidecars.
func (n *lifecycle) runInit(r *record, now time.Time) bool {
	started := r.appStarted()
	for _, c := range r.list {
		if c.kind == appContainer || c.kind == initContainer && started {
			continue
		}

		n.run(r, c, now)
		if started || c.completed() || c.kind == sidecar && c.phase == running {
			continue
		}

		if c.kind == initContainer && c.phase == exited && c.restartAt.IsZero() {
			r.complete(now)
		}

		return false
	}

	return true
}

// appStarted reports whether any app container has run.
func (r *record) appStarted() bool {
	for _, c := range r.list {
		if c.kind == appContainer && c.phase != waiting {
			return true
		}
	}

	return false
}

// complete stops the sidecars of a pod whose app containers will not run again.
func (r *record) complete(now time.Time) {
	for _, c := range r.list {
		if c.phase == running {
			c.stop(0, "Completed", now)
		}

		c.restartAt = time.Time{}
		c.looping = false
	}

	r.finished = true
}

// fail terminates a pod immediately.
func (r *record) fail(v verdict, now time.Time) {
	for _, c := range r.list {
		if c.phase == running {
			c.stop(137, "Error", now)
		}

		c.restartAt = time.Time{}
		c.looping = false
	}

	r.failed = &v
}

// terminate stops a pod that is being deleted, within its grace period.
func (n *lifecycle) terminate(r *record, now time.Time) {
	// The first call sends SIGTERM; later ones wait for the containers to exit.
	if r.killAt.IsZero() {
		grace := n.timing.Stop
		if g := r.pod.DeletionGracePeriodSeconds; g != nil {
			grace = min(grace, time.Duration(*g)*time.Second)
		}

		r.killAt = now.Add(grace)
		anyRunning := false
		for _, c := range r.list {
			if c.phase == running {
				anyRunning = true
				n.eventf(r, corev1.EventTypeNormal, "Killing", "Stopping container %s", c.name)
			}

			c.restartAt = time.Time{}
			c.looping = false
		}

		if !anyRunning {
			r.killAt = now
		}
	}

	if now.Before(r.killAt) {
		return
	}

	for _, c := range r.list {
		if c.phase == running {
			c.stop(143, "Error", now)
		}
	}

	r.finished = true
}

// wake returns the time of the pod's next transition.
func (r *record) wake() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}

	// A pod that is being deleted has no other transition.
	switch {
	case !r.active():
		return at
	case !r.killAt.IsZero():
		return r.killAt
	}

	if d := r.pod.Spec.ActiveDeadlineSeconds; d != nil {
		sooner(r.arrival.Add(time.Duration(*d) * time.Second))
	}

	if !r.sandbox {
		sooner(r.sandboxAt)
		return at
	}

	sooner(r.applyAt)
	for _, c := range r.list {
		sooner(c.restartAt)
		if c.phase == running {
			sooner(c.exitAt)
			if !c.ready {
				sooner(c.readyAt)
			}
		}
	}

	return at
}
