// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/observe"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
)

// usage combines the snapshots since the last decision into one measurement: the mean CPU use, because that of one second varies, and the
// memory of the moment at which non-elastic pods used most.
type usage struct {
	lastSeen time.Time // time of the last snapshot
	cpu      meanCPU
	memory   model.Use[units.Bytes]
	memoryOK bool
	// exclusiveKnown means that the idle part of exclusive CPUs was known once, or that there were none.
	exclusiveKnown bool
	// lastCPU and lastMemory are the measurements of the previous decision; their age shows that snapshots stopped.
	lastCPU    model.Use[units.MilliCPU]
	lastMemory model.Use[units.Bytes]
}

type meanCPU struct {
	at             time.Time
	total, elastic units.MilliCPU
	count          units.MilliCPU
	// exclusive is the largest idle part of exclusive CPUs; exclusiveUnknown means that it was never measured although CPUs may be exclusive.
	exclusive        units.MilliCPU
	exclusiveUnknown bool
}

// add adds a snapshot once.
func (u *usage) add(s *observe.Snapshot, requests map[string]elasticrequest.Amounts) {
	if s == nil || s.At.Equal(u.lastSeen) {
		return
	}

	u.lastSeen = s.At
	cpu, memory := sumElasticUse(s, requests)
	// What is idle of exclusive CPUs must not be offered: before its first measurement the use of CPUs is unknown, later the last one counts.
	unknown := s.Node.ExclusiveUnknown
	if s.Node.UsedCPU.OK && (!unknown || u.exclusiveKnown) {
		u.cpu.exclusiveUnknown = unknown && (u.cpu.count == 0 || u.cpu.exclusiveUnknown)
		u.exclusiveKnown = true
		u.cpu.at = s.At
		u.cpu.total += s.Node.UsedCPU.Value

		u.cpu.elastic += cpu
		u.cpu.count++
		if idle := s.Node.ExclusiveIdle; idle.OK {
			u.cpu.exclusive = max(u.cpu.exclusive, idle.Value)
		}
	}

	if m := s.Node.Memory; m.OK {
		// Swapped-out memory needs room when it comes back; otherwise elastic pods would push others out of memory for good.
		now := model.Use[units.Bytes]{At: s.At, Total: m.Value.Total - m.Value.Available + m.Value.SwappedOut, Elastic: memory}
		if !u.memoryOK || now.Total-now.Elastic > u.memory.Total-u.memory.Elastic {
			u.memory.Total, u.memory.Elastic = now.Total, now.Elastic
		}

		u.memory.At = s.At
		u.memoryOK = true
	}
}

// complete reports whether both resources were measured since the last decision.
func (u *usage) complete() bool { return u.cpu.count > 0 && u.memoryOK }

// drain returns the measurement and starts the next one. Without new snapshots it returns the previous measurement with its time.
func (u *usage) drain() (model.Use[units.MilliCPU], model.Use[units.Bytes]) {
	if n := u.cpu.count; n > 0 {
		exclusive := u.cpu.exclusive
		if u.cpu.exclusiveUnknown {
			exclusive = u.lastCPU.Exclusive
		}

		u.lastCPU = model.Use[units.MilliCPU]{
			At:        u.cpu.at,
			Total:     (u.cpu.total + n - 1) / n,
			Elastic:   u.cpu.elastic / n,
			Exclusive: exclusive,
		}
	}

	if u.memoryOK {
		u.lastMemory = u.memory
	}

	u.cpu = meanCPU{}
	u.memory = model.Use[units.Bytes]{}
	u.memoryOK = false

	return u.lastCPU, u.lastMemory
}

// sumElasticUse sums the use of containers that request a resource, each resource separately: a pod that requests only gocrane.io/cpu
// uses ordinary memory. Memory excludes page cache, as the node's use does. Unknown use counts as that of other pods.
func sumElasticUse(s *observe.Snapshot, requests map[string]elasticrequest.Amounts) (cpu units.MilliCPU, memory units.Bytes) {
	if len(requests) == 0 {
		return 0, 0
	}

	for i := range s.Pods {
		for j := range s.Pods[i].Containers {
			c := &s.Pods[i].Containers[j]
			request, ok := requests[c.ID]
			if !ok {
				continue
			}

			if request.CPU > 0 && c.UsedCPU.OK {
				cpu += c.UsedCPU.Value
			}
			if request.Memory > 0 && c.Memory.OK {
				memory += c.Memory.Value.Unreclaimable()
			}
		}
	}

	return cpu, memory
}

// readContainerRequests returns elastic requests by container ID.
func readContainerRequests(pods []*corev1.Pod) map[string]elasticrequest.Amounts {
	out := map[string]elasticrequest.Amounts{}
	for _, pod := range pods {
		for _, c := range elasticrequest.Containers(pod) {
			if c.ID != "" {
				out[c.ID] = c.Amounts
			}
		}
	}

	return out
}
