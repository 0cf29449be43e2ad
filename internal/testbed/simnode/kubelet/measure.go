// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
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

	// The container receives at most its limit; the rest counts as throttled time.
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
	n.sampledAt = now
	if n.startedAt.IsZero() {
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
	n.eventf(r, corev1.EventTypeWarning, "OOMKilling", "Memory cgroup out of memory: container %s used %.0f bytes, limit %.0f bytes",
		c.name, u.Memory, limitOf(c, corev1.ResourceMemory))
	n.life.exit(r, c, 137, reasonOOM, now)
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
				n.life.exit(r, c, code, "Error", now)
				n.dirty[r.uid()] = true
				return true
			}
		}
	}

	return false
}

// Use is the demand of one container at one time.
type Use struct {
	// CPU is the demand in cores. The CPU limit caps what the container gets.
	CPU float64
	// Memory is the working set in bytes.
	Memory float64
	// Cache is the part of Memory that is page cache, in bytes. It is reclaimed before a container is OOM-killed.
	Cache float64
	// Known is false if the use is unknown; such a container is not measured, killed or evicted for its use.
	Known bool
}

// Load computes the use of containers. Implementations must be fast (called for every running container at every
// sample), safe for concurrent use, and must not modify the pod. The pod's status is that of the simulated node, so
// that a load can restart with its container.
type Load interface {
	Use(pod *corev1.Pod, container string, at time.Time) Use
}

// Idle is a load of zero.
type Idle struct{}

// Use implements Load.
func (Idle) Use(*corev1.Pod, string, time.Time) Use { return Use{Known: true} }

// sane converts invalid values (NaN, infinite, negative) to an unknown use.
func (u Use) sane() Use {
	for _, v := range []float64{u.CPU, u.Memory, u.Cache} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return Use{}
		}
	}

	u.Cache = min(u.Cache, u.Memory)
	return u
}

// Within returns the use under a memory limit in bytes, 0 for none: page cache is reclaimed as far as necessary. Memory
// that still exceeds the limit leads to an OOM kill.
func (u Use) Within(limit float64) Use {
	if limit <= 0 || u.Memory <= limit {
		return u
	}

	reclaimed := min(u.Cache, u.Memory-limit)
	u.Memory -= reclaimed
	u.Cache -= reclaimed

	return u
}
