// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ContainerState is what there is to know about one container that runs, for exporters and APIs.
type ContainerState struct {
	// Pod is the pod with the status that its node reports. Shared: it must not be changed.
	Pod *corev1.Pod
	// Container is the container's name, Node the node's.
	Container, Node string
	// ID is the container's id with the runtime's scheme, Image the image of its spec.
	ID, Image string
	// StartedAt is the start of the current run.
	StartedAt time.Time
	// Restarts counts restarts, OOMKills the runs that ended by the memory limit since the simulation saw the pod.
	Restarts int32
	OOMKills int64
	// Resources are those in force, which during a resize are not those of the spec.
	Resources corev1.ResourceRequirements
	// Use is the last sample at SampledAt, CPU capped by the limit; not Known before the first sample.
	Use       Use
	SampledAt time.Time
	// CPUSeconds, Periods, ThrottledPeriods and ThrottledSeconds are counters since StartedAt, as the kernel keeps them.
	CPUSeconds, Periods, ThrottledPeriods, ThrottledSeconds float64
	// Reachable is false while the container's node is failed: nobody could scrape it.
	Reachable bool
}

// Containers appends the running containers of the node's pods to list.
func (n *Node) Containers(list []ContainerState, reachable bool) []ContainerState {
	for _, pod := range n.Pods() {
		r := n.pods[pod.UID]
		for _, c := range r.list {
			if c.phase != running || !r.active() {
				continue
			}
			list = append(list, ContainerState{
				Pod: pod, Container: c.name, Node: n.spec.Name, ID: c.id, Image: r.spec(c).Image, StartedAt: c.startedAt,
				Restarts: c.restarts, OOMKills: c.oomKills, Resources: c.actual, Use: c.meter.use, SampledAt: c.meter.at,
				CPUSeconds: c.meter.cpuSeconds, Periods: c.meter.periods, ThrottledPeriods: c.meter.throttled,
				ThrottledSeconds: c.meter.throttledSeconds, Reachable: reachable,
			})
		}
	}
	return list
}

// NodeState is what there is to know about a node as a whole.
type NodeState struct {
	// Spec is the node's description.
	Spec NodeSpec
	// Address and Port are those of the node's kubelet endpoint; Port is 0 where none is served.
	Address string
	Port    int
	// Reachable is false while the node is failed.
	Reachable bool
	// Use is the sum over the containers at SampledAt; not Known before the first sample.
	Use       Use
	SampledAt time.Time
	// CPUSeconds is what all containers have used since StartedAt, the start of the simulation of this node.
	CPUSeconds float64
	StartedAt  time.Time
	// MemoryPressure says whether the node is evicting.
	MemoryPressure bool
}

// State describes the node; the fields of the endpoint are left to the caller.
func (n *Node) State() NodeState {
	s := NodeState{
		Spec: n.spec, SampledAt: n.sampledAt, StartedAt: n.startedAt, CPUSeconds: n.cpuSeconds,
		MemoryPressure: n.pressure.active,
	}
	if n.sampledAt.IsZero() {
		return s
	}
	s.Use.Known = true
	for _, r := range n.pods {
		if !r.active() {
			continue
		}
		for _, c := range r.list {
			if c.phase == running && c.meter.use.Known {
				s.Use.CPU += c.meter.use.CPU
				s.Use.Memory += c.meter.use.Memory
			}
		}
	}
	return s
}
