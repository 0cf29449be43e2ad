// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ContainerState is the state of a running container, for exporters and APIs.
type ContainerState struct {
	// Pod is the pod with its current status. It is shared and must not be modified.
	Pod *corev1.Pod
	// Container is the name of the container, Node that of its node.
	Container, Node string
	// ID is the container ID with the runtime's scheme, Image the image of the spec.
	ID, Image string
	// StartedAt is the start of the current run.
	StartedAt time.Time
	// Restarts counts restarts, OOMKills the OOM kills since the simulation first observed the pod.
	Restarts int32
	OOMKills int64
	// Resources are those in effect, which during a resize differ from the spec's.
	Resources corev1.ResourceRequirements
	// Use is the last sample at SampledAt, CPU capped by the limit; not Known before the first sample.
	Use       Use
	SampledAt time.Time
	// CPUSeconds, Periods, ThrottledPeriods and ThrottledSeconds are counters since StartedAt, as in the kernel.
	CPUSeconds, Periods, ThrottledPeriods, ThrottledSeconds float64
	// Reachable is false while the container's node is failed and cannot be scraped.
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

// NodeState is the state of a node.
type NodeState struct {
	// Spec is the node's specification.
	Spec NodeSpec
	// Address and Port are those of the node's kubelet endpoint; Port is 0 without one.
	Address string
	Port    int
	// Reachable is false while the node is failed.
	Reachable bool
	// Use is the sum over the containers at SampledAt; not Known before the first sample.
	Use       Use
	SampledAt time.Time
	// CPUSeconds is the CPU time of all containers since StartedAt, the start of the simulation of this node.
	CPUSeconds float64
	StartedAt  time.Time
}

// State returns the state of the node without the fields of its endpoint.
func (n *Node) State() NodeState {
	s := NodeState{
		Spec: n.spec, SampledAt: n.sampledAt, StartedAt: n.startedAt, CPUSeconds: n.cpuSeconds,
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
