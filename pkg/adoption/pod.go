// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"cmp"
	"fmt"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// ResizeStatus is the progress of the last resize of a pod, as its kubelet reports it.
type ResizeStatus string

const (
	// ResizeDone means: the pod has the size of its spec.
	ResizeDone ResizeStatus = ""
	// ResizeDeferred means that the node has no free capacity now; the kubelet retries.
	ResizeDeferred ResizeStatus = "Deferred"
	// ResizeInfeasible means: this node can never provide the size.
	ResizeInfeasible ResizeStatus = "Infeasible"
	// ResizeInProgress means: the kubelet is applying the size.
	ResizeInProgress ResizeStatus = "InProgress"
	// ResizeFailed means: the kubelet failed and retries, mostly because the memory in use exceeds the new limit.
	ResizeFailed ResizeStatus = "Failed"
)

// Pod holds the state of a pod that decisions require.
type Pod struct {
	Name, UID string
	Created   time.Time
	// NotResizable is the reason why the pod cannot be resized at all; empty for a running pod that can.
	NotResizable string
	// Protected is the reason why the pod must not be evicted; empty if it may be.
	Protected string
	// Containers of the pod's spec, init containers included.
	Containers []Container
	// ResizeStatus is the progress of the last resize; ResizeMessage is the kubelet's.
	ResizeStatus  ResizeStatus
	ResizeMessage string
	// Refused is the reason why the API server refused RefusedSize for this pod; empty if it did not. RefusedOnAnyNode reports that it would
	// be refused for a replacement of the pod as well, as far as is known.
	Refused          string
	RefusedSize      Size
	RefusedOnAnyNode bool
	// Room is the CPU of its node that no pod requests; nil if it is unknown.
	Room *units.MilliCPU
	// Ready is the condition Ready; UnreadySince is when it last changed, or when the pod was created.
	Ready        bool
	UnreadySince time.Time
}

// Container is one container of a pod.
type Container struct {
	Name string
	// Size is the size in its spec.
	Size rightsize.Resources
	// Frozen containers cannot be resized: init containers that end before the others start.
	Frozen bool
	// RestartsForCPU and RestartsForMemory report whether a resize of the resource restarts the container.
	RestartsForCPU, RestartsForMemory bool
	// KilledAt is the last OOM kill, EndedAt the last end for any reason; zero for none.
	KilledAt, EndedAt time.Time
}

// qosClass returns the QoS class of a pod in Kubernetes.
type qosClass int

const (
	bestEffort qosClass = iota
	burstable
	guaranteed
)

func (p Pod) qosClass() qosClass {
	some := false
	all := len(p.Containers) > 0
	for _, c := range p.Containers {
		s := Size{Containers: map[string]rightsize.Resources{"": c.Size}}
		for _, pair := range [][2]field{{cpuRequest, cpuLimit}, {memoryRequest, memoryLimit}} {
			request, r := s.get(amount{field: pair[0]})
			limit, l := s.get(amount{field: pair[1]})
			some = some || r && request > 0 || l && limit > 0
			all = all && r && l && request == limit && limit > 0
		}
	}

	switch {
	case all:
		return guaranteed
	case some:
		return burstable
	default:
		return bestEffort
	}
}

// KeepsQOSClass reports whether the QoS class of another size of the pod is the same. A pod without any request may get some.
func (p Pod) KeepsQOSClass(resized Pod) bool {
	class := p.qosClass()
	return class == bestEffort || class == resized.qosClass()
}

// Guaranteed reports whether the QoS class of the pod is Guaranteed.
func (p Pod) Guaranteed() bool { return p.qosClass() == guaranteed }

// size returns the size in the spec of the pod.
func (p Pod) size() Size {
	out := Size{Containers: map[string]rightsize.Resources{}}
	for _, c := range p.Containers {
		out.Containers[c.Name] = c.Size
	}

	return out.Clone()
}

// withSize returns the pod with another size in its spec.
func (p Pod) withSize(s Size) Pod {
	resized := make([]Container, len(p.Containers))
	for i, c := range p.Containers {
		c.Size = s.Containers[c.Name]
		resized[i] = c
	}

	p.Containers = resized
	return p
}

// InPlaceSize returns the size closest to the goal that the pod can get in place and lose again: amounts that its spec lacks are not
// added and amounts that the goal lacks stay, since neither could be reverted in place. The reason explains why nothing changes.
func (p Pod) InPlaceSize(goal Size) (to Size, reason string) {
	to = p.size()
	frozen := map[string]bool{}
	for _, c := range p.Containers {
		frozen[c.Name] = c.Frozen
	}

	for _, a := range to.amounts() {
		if v, ok := goal.get(a); ok && !frozen[a.container] {
			to.set(a, v)
		}
	}

	// The API server refuses a request above its limit.
	for _, a := range to.amounts() {
		if !a.field.limit() {
			continue
		}

		limit, _ := to.get(a)
		request := amount{a.container, a.field.request()}
		if v, ok := to.get(request); ok && v > limit {
			to.set(request, limit)
		}
	}

	switch class := p.qosClass(); {
	case class == bestEffort:
		return p.size(), "it is BestEffort: requests in place would change its QoS class; new pods get them"
	case class != p.withSize(to).qosClass():
		return p.size(), "its QoS class would change"
	}

	return to, ""
}

// restarts reports whether a resize to the size restarts a container of the pod.
func (p Pod) restarts(to Size) bool {
	from := p.size()
	for _, c := range p.Containers {
		for f := cpuRequest; f <= memoryLimit; f++ {
			a := amount{c.Name, f}
			before, _ := from.get(a)
			after, _ := to.get(a)

			cpu := f == cpuRequest || f == cpuLimit
			if before != after && (cpu && c.RestartsForCPU || !cpu && c.RestartsForMemory) {
				return true
			}
		}
	}

	return false
}

// resizeRemark describes a resize that is not done; "" if it is.
func (p Pod) resizeRemark() string {
	if p.ResizeStatus == ResizeDone {
		return ""
	}

	return fmt.Sprintf("pod %s: resize %s: %s", p.Name, p.ResizeStatus, cmp.Or(p.ResizeMessage, "the kubelet has given no reason yet"))
}
