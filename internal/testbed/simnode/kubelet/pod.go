// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

// kind is the role of a container in its pod's lifecycle.
type kind int

const (
	appContainer kind = iota
	initContainer
	sidecar
)

// phase is the state of a container as the runtime sees it.
type phase int

const (
	waiting phase = iota // not yet started for the first time
	running
	exited // exited; restarts if restartAt is set
)

// container is the runtime's record of one container.
type container struct {
	name string
	kind kind
	// index is the position in spec.initContainers or spec.containers.
	index int

	phase     phase
	id        string
	startedAt time.Time
	ready     bool
	readyAt   time.Time
	// exitAt is when the process exits with exitCode; zero if it runs until it is stopped.
	exitAt   time.Time
	exitCode int32
	// restartAt is when an exited container restarts; zero if it does not.
	restartAt time.Time
	// looping means that the wait for restartAt is a backoff.
	looping  bool
	backOff  time.Duration
	restarts int32
	oomKills int64
	// ended is the last termination; last the one before the current run.
	ended, last *corev1.ContainerStateTerminated

	// allocated is what the node has admitted, actual what is in effect.
	allocated, actual corev1.ResourceRequirements

	meter meter
}

// verdict is the reason for which the node terminated a pod.
type verdict struct {
	reason, message string
	disruption      bool
}

// resizeState is a resize condition with its reason.
type resizeState struct {
	reason, message string
	generation      int64
	since           time.Time
}

// record is the state of one pod.
type record struct {
	pod *corev1.Pod
	// arrival is when the node first observed the pod.
	arrival   time.Time
	sandboxAt time.Time
	sandbox   bool
	ip        string
	list      []*container
	requests  corev1.ResourceList

	failed   *verdict
	finished bool // no container will run again
	killAt   time.Time

	pending, progress *resizeState
	applyAt           time.Time

	status *corev1.PodStatus
	view   *corev1.Pod
}

// newRecord returns the record of a pod that has not started.
func newRecord(pod *corev1.Pod, now time.Time) *record {
	r := &record{pod: pod, arrival: now}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		k := initContainer
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			k = sidecar
		}

		r.list = append(r.list, &container{name: c.Name, kind: k, index: i})
	}

	for i := range pod.Spec.Containers {
		r.list = append(r.list, &container{name: pod.Spec.Containers[i].Name, kind: appContainer, index: i})
	}

	return r
}

// spec returns the container's current spec.
func (r *record) spec(c *container) *corev1.Container {
	if c.kind == appContainer {
		return &r.pod.Spec.Containers[c.index]
	}

	return &r.pod.Spec.InitContainers[c.index]
}

// allocate admits the resources of the spec. For containers that are not running they take effect immediately.
func (r *record) allocate() {
	for _, c := range r.list {
		c.allocated = *r.spec(c).Resources.DeepCopy()
		if c.phase != running {
			c.actual = c.allocated
		}
	}

	r.requests = r.podRequests(func(c *container) corev1.ResourceRequirements { return c.allocated })
}

// podRequests returns the pod's requests as the scheduler computes them, with the given container resources.
func (r *record) podRequests(resources func(*container) corev1.ResourceRequirements) corev1.ResourceList {
	shadow := &corev1.Pod{Spec: r.pod.Spec}
	shadow.Spec.Containers = append([]corev1.Container(nil), r.pod.Spec.Containers...)
	shadow.Spec.InitContainers = append([]corev1.Container(nil), r.pod.Spec.InitContainers...)
	for _, c := range r.list {
		if c.kind == appContainer {
			shadow.Spec.Containers[c.index].Resources = resources(c)
		} else {
			shadow.Spec.InitContainers[c.index].Resources = resources(c)
		}
	}

	return resourcehelper.PodRequests(shadow, resourcehelper.PodResourcesOptions{})
}

// resizable reports whether a container can be resized in place: plain init containers cannot.
func (c *container) resizable() bool { return c.kind != initContainer }

// completed reports whether a plain init container has completed.
func (c *container) completed() bool {
	return c.kind == initContainer && c.phase == exited && c.ended.ExitCode == 0
}

// active reports whether the pod uses resources of the node.
func (r *record) active() bool { return r.failed == nil && !r.finished }

// uid returns the pod's UID.
func (r *record) uid() types.UID { return r.pod.UID }

// observe stores a newer version of the pod.
func (r *record) observe(pod *corev1.Pod) {
	r.pod = pod
	r.view = nil
}

// current returns the pod with the status of the node. It is shared and must not be modified.
func (r *record) current() *corev1.Pod {
	if r.view == nil {
		view := *r.pod
		if r.status != nil {
			view.Status = *mergeStatus(&r.pod.Status, r.status)
		}

		r.view = &view
	}

	return r.view
}

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
			// Exporters have no series for containers that do not run.
			if c.phase != running || !r.active() {
				continue
			}

			list = append(list, ContainerState{
				Pod:              pod,
				Container:        c.name,
				Node:             n.spec.Name,
				ID:               c.id,
				Image:            r.spec(c).Image,
				StartedAt:        c.startedAt,
				Restarts:         c.restarts,
				OOMKills:         c.oomKills,
				Resources:        c.actual,
				Use:              c.meter.use,
				SampledAt:        c.meter.at,
				CPUSeconds:       c.meter.cpuSeconds,
				Periods:          c.meter.periods,
				ThrottledPeriods: c.meter.throttled,
				ThrottledSeconds: c.meter.throttledSeconds,
				Reachable:        reachable,
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
		Spec:       n.spec,
		SampledAt:  n.sampledAt,
		StartedAt:  n.startedAt,
		CPUSeconds: n.cpuSeconds,
	}

	if n.sampledAt.IsZero() {
		return s
	}

	// The use of the node is that of its measured containers.
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
