// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/rightsize"
)

// ResizeStatus is how far the node has come with the last size that a pod was given.
type ResizeStatus string

// The states of a resize.
const (
	// ResizeDone: the pod has it.
	ResizeDone ResizeStatus = ""
	// ResizeDeferred: the node has no room now, and will try again.
	ResizeDeferred ResizeStatus = "Deferred"
	// ResizeInfeasible: this node can never give it.
	ResizeInfeasible ResizeStatus = "Infeasible"
	// ResizeInProgress: the node is at it.
	ResizeInProgress ResizeStatus = "InProgress"
	// ResizeFailed: the node has tried and could not, and tries again: memory in use above the new limit, mostly.
	ResizeFailed ResizeStatus = "Failed"
)

// Pod is a pod of the workload as far as adoption looks at it.
type Pod struct {
	Name, UID string
	Created   time.Time
	// NotResizable says why the pod cannot be resized; empty where it can: it runs, and nobody is deleting it.
	NotResizable string
	// Containers of the pod's spec, init containers included.
	Containers []Container
	// ResizeStatus is how far the last resize has come; Message is the node's.
	ResizeStatus  ResizeStatus
	ResizeMessage string
	// Refused says why the pod can never be given RefusedSize in place, where that was refused before its node was asked; empty where
	// nothing was.
	Refused     string
	RefusedSize Size
	// Ready tells whether it serves; UnreadySince is when it ceased to, or never did.
	Ready        bool
	UnreadySince time.Time
}

// Container is one container of a pod.
type Container struct {
	Name string
	// Size is what its spec asks for.
	Size rightsize.Resources
	// Frozen containers cannot be resized: they run to their end before the others start.
	Frozen bool
	// RestartsForCPU and RestartsForMemory say that a change of it restarts the container.
	RestartsForCPU, RestartsForMemory bool
	// KilledAt is the last end for lack of memory, EndedAt the last of any kind; the zero time for none.
	KilledAt, EndedAt time.Time
}

// qosClass is the QoS class that a set of containers has.
type qosClass int

const (
	bestEffort qosClass = iota
	burstable
	guaranteed
)

func (p Pod) qosClass() qosClass {
	some, all := false, len(p.Containers) > 0
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

// Guaranteed tells whether the pod's QoS class is that.
func (p Pod) Guaranteed() bool { return p.qosClass() == guaranteed }

// size is what the spec of the pod asks for.
func (p Pod) size() Size {
	out := Size{Containers: map[string]rightsize.Resources{}}
	for _, c := range p.Containers {
		out.Containers[c.Name] = c.Size
	}
	return out.Clone()
}

// InPlaceSize is what a pod is given in place to have the goal, as far as that can be taken back: what it does not ask for is not
// added, and what the goal lacks is not taken away, for neither could be undone in place. why says that it is given nothing.
func (p Pod) InPlaceSize(goal Size) (to Size, why string) {
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
	// A limit that stays bounds its request: a request above it would be refused.
	for _, a := range to.amounts() {
		if a.field.limit() {
			limit, _ := to.get(a)
			of := amount{a.container, a.field.request()}
			if request, ok := to.get(of); ok && request > limit {
				to.set(of, limit)
			}
		}
	}
	after := p
	after.Containers = nil
	for _, c := range p.Containers {
		c.Size = to.Containers[c.Name]
		after.Containers = append(after.Containers, c)
	}
	if p.qosClass() == bestEffort {
		return p.size(), "it is BestEffort: requests in place would change its QoS class; new pods get them"
	}
	if after.qosClass() != p.qosClass() {
		return p.size(), "its QoS class would change"
	}
	return to, ""
}

// restarts tells whether going from one size to another restarts a container of the pod.
func (p Pod) restarts(to Size) bool {
	from := p.size()
	for _, c := range p.Containers {
		for f := cpuRequest; f <= memoryLimit; f++ {
			a := amount{c.Name, f}
			now, _ := from.get(a)
			then, _ := to.get(a)
			cpu := f == cpuRequest || f == cpuLimit
			if now != then && (cpu && c.RestartsForCPU || !cpu && c.RestartsForMemory) {
				return true
			}
		}
	}
	return false
}

// reduces tells whether a size has less of anything than another.
func reduces(from, to Size) bool {
	for _, a := range from.amounts() {
		now, _ := from.get(a)
		if then, ok := to.get(a); ok && then < now {
			return true
		}
	}
	return false
}

// resizeRemark says how long a node may be at it before the step goes on without the pod.
func (p Pod) resizeRemark() string {
	switch p.ResizeStatus {
	case ResizeDeferred, ResizeFailed, ResizeInProgress, ResizeInfeasible:
		return fmt.Sprintf("pod %s: resize %s: %s", p.Name, p.ResizeStatus, p.ResizeMessage)
	default:
		return ""
	}
}
