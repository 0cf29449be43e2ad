// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const reasonOOM = "OOMKilled"

// cfsPeriod is the kernel's default accounting period for CPU limits.
const cfsPeriod = 100 * time.Millisecond

// meter counts the use of a run of a container; it starts at zero with each run, like a cgroup.
type meter struct {
	use        Use
	at         time.Time
	cpuSeconds float64
	periods    float64
	throttled  float64
	// throttledSeconds is the CPU time that was demanded but not granted.
	throttledSeconds float64
}

// add adds a sample for the time since the previous one, or since the start of the run. It returns the CPU seconds of
// that time.
func (m *meter) add(u Use, startedAt, now time.Time, limit float64) float64 {
	from := m.at
	if from.IsZero() || from.Before(startedAt) {
		from = startedAt
	}
	m.at = now
	demand := u.CPU
	if limit > 0 {
		u.CPU = min(u.CPU, limit)
	}
	m.use = u
	dt := now.Sub(from).Seconds()
	if !u.Known || dt <= 0 {
		return 0
	}
	m.cpuSeconds += u.CPU * dt
	if limit <= 0 {
		return u.CPU * dt
	}
	m.periods += dt / cfsPeriod.Seconds()
	if demand > limit {
		m.throttled += dt / cfsPeriod.Seconds()
		m.throttledSeconds += (demand - limit) * dt
	}
	return u.CPU * dt
}

// Measure samples every running container: it advances the counters, OOM-kills containers over their memory limit, and
// evicts at most one pod under memory pressure. Changed pods are included in the next Dirty.
func (n *Node) Measure(load Load, now time.Time) {
	total := 0.0
	if n.sampledAt = now; n.startedAt.IsZero() {
		n.startedAt = now
	}
	for _, r := range n.pods {
		if !r.active() {
			continue
		}
		view := r.current()
		for _, c := range r.list {
			if c.phase != running {
				continue
			}
			limit := limitOf(c, corev1.ResourceMemory)
			u := load.Use(view, c.name, now).sane().Within(limit)
			n.cpuSeconds += c.meter.add(u, c.startedAt, now, limitOf(c, corev1.ResourceCPU))
			if !u.Known {
				continue
			}
			if limit > 0 && u.Memory > limit {
				n.oomKill(r, c, u, now)
				continue
			}
			total += u.Memory
		}
		if r.progress != nil {
			n.dirty[r.uid()] = true // a shrink may wait for lower use
		}
	}
	n.relieve(total, now)
}

// limitOf returns the current limit in cores or bytes, 0 without one.
func limitOf(c *container, name corev1.ResourceName) float64 {
	q, ok := c.actual.Limits[name]
	if !ok {
		return 0
	}
	return q.AsApproximateFloat64()
}

// oomKill kills a container whose memory without page cache exceeds its limit.
func (n *Node) oomKill(r *record, c *container, u Use, now time.Time) {
	c.oomKills++
	n.tellf(r, corev1.EventTypeWarning, "OOMKilling", "Memory cgroup out of memory: container %s used %.0f bytes, limit %.0f bytes",
		c.name, u.Memory, limitOf(c, corev1.ResourceMemory))
	n.exit(r, c, 137, reasonOOM, now)
	n.dirty[r.uid()] = true
}

// Kill terminates a running container with the given exit code, like a crash; its restart policy applies. It returns
// false if there is no such running container.
func (n *Node) Kill(namespace, pod, name string, code int32, now time.Time) bool {
	for _, r := range n.pods {
		if r.pod.Namespace != namespace || r.pod.Name != pod || !r.active() {
			continue
		}
		for _, c := range r.list {
			if c.name == name && c.phase == running {
				n.exit(r, c, code, "Error", now)
				n.dirty[r.uid()] = true
				return true
			}
		}
	}
	return false
}
