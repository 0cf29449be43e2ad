// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/observe"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/series"
)

// usage makes one measurement for a decision of the snapshots since the last: the mean of cpu, whose use of a second says little, and of
// memory the moment in which others than elastic pods used most.
type usage struct {
	lastSeen time.Time // the last snapshot
	cpu      meanCPU
	memory   model.Use[series.Bytes]
	memoryOK bool
	// lastCPU and lastMemory are those of the decision before; their age tells when nothing comes any more.
	lastCPU    model.Use[series.MilliCPU]
	lastMemory model.Use[series.Bytes]
}

type meanCPU struct {
	at             time.Time
	total, elastic series.MilliCPU
	count          series.MilliCPU
	// exclusive is the most that was idle of the CPUs that are containers' alone.
	exclusive series.MilliCPU
}

// add takes a snapshot in, once.
func (u *usage) add(s *observe.Snapshot, claims map[string]elasticrequest.Amounts) {
	if s == nil || s.At.Equal(u.lastSeen) {
		return
	}
	u.lastSeen = s.At
	cpu, memory := sumElasticUse(s, claims)
	if s.Node.UsedCPU.OK {
		u.cpu.at = s.At
		u.cpu.total += s.Node.UsedCPU.Value
		u.cpu.elastic += cpu
		u.cpu.count++
		if idle := s.Node.ExclusiveIdle; idle.OK {
			u.cpu.exclusive = max(u.cpu.exclusive, idle.Value)
		}
	}
	if m := s.Node.Memory; m.OK {
		// What is in swap is to have room when it comes back: else elastic pods would push others out of memory for good.
		now := model.Use[series.Bytes]{At: s.At, Total: m.Value.Total - m.Value.Available + m.Value.SwappedOut, Elastic: memory}
		if !u.memoryOK || now.Total-now.Elastic > u.memory.Total-u.memory.Elastic {
			u.memory.Total, u.memory.Elastic = now.Total, now.Elastic
		}
		u.memory.At, u.memoryOK = s.At, true
	}
}

// complete tells that both resources were measured since the last decision.
func (u *usage) complete() bool { return u.cpu.count > 0 && u.memoryOK }

// drain ends the span. Where nothing was measured in it, the last measurement stays, at its time.
func (u *usage) drain() (model.Use[series.MilliCPU], model.Use[series.Bytes]) {
	if n := u.cpu.count; n > 0 {
		u.lastCPU = model.Use[series.MilliCPU]{At: u.cpu.at, Total: (u.cpu.total + n - 1) / n, Elastic: u.cpu.elastic / n, Exclusive: u.cpu.exclusive}
	}
	if u.memoryOK {
		u.lastMemory = u.memory
	}
	u.cpu, u.memory, u.memoryOK = meanCPU{}, model.Use[series.Bytes]{}, false
	return u.lastCPU, u.lastMemory
}

// sumElasticUse is the use of the containers that claim a resource, each resource on its own: a pod that asks for gocrane.io/cpu alone has
// its memory from the node as everybody else. What is not known counts as that of others.
func sumElasticUse(s *observe.Snapshot, claims map[string]elasticrequest.Amounts) (cpu series.MilliCPU, memory series.Bytes) {
	if len(claims) == 0 {
		return 0, 0
	}
	for i := range s.Pods {
		for j := range s.Pods[i].Containers {
			c := &s.Pods[i].Containers[j]
			claimed, ok := claims[c.ID]
			if !ok {
				continue
			}
			if claimed.CPU > 0 && c.UsedCPU.OK {
				cpu += c.UsedCPU.Value
			}
			if claimed.Memory > 0 && c.Memory.OK {
				memory += c.Memory.Value.WorkingSet
			}
		}
	}
	return cpu, memory
}

// readContainerRequests is what containers claim, by their id.
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
