// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"

	"crane.io/crane/pkg/series"
)

// limit is a limit of a container in force: of cpu, or of memory. 0 is one that is not known, noLimit none.
type limit interface{ Quota | MemoryHigh }

// noLimit is Unlimited and NoMemoryHigh.
const noLimit = math.MaxInt64

// throttleRecord is what a container was throttled by, to be given back.
type throttleRecord[L limit] struct {
	Pod         PodRef
	ContainerID string
	// Original is the limit before, Set the one that was written.
	Original, Set L
	// Before is the use when it was throttled first: what a container without a limit of its own is given back in steps.
	Before L
	// Step is the share by which cpu was taken last.
	Step series.Ratio

	// pending is a limit that is being written.
	pending L
	missed  int
}

// forgetAfter is the number of observations without a container after which it is gone for good.
const forgetAfter = 60

// throttleRecords has what was taken of a resource, by the container's id.
type throttleRecords[L limit] map[string]*throttleRecord[L]

// contains tells whether something was taken from a container.
func (b throttleRecords[L]) contains(container string) bool { return b[container] != nil }

// record books a limit that was set: the first one of a container with what was before, a later one as the next step of it.
func (b *throttleRecords[L]) record(next throttleRecord[L]) {
	if next.Set == next.Original {
		delete(*b, next.ContainerID)
		return
	}
	if *b == nil {
		*b = throttleRecords[L]{}
	}
	k := (*b)[next.ContainerID]
	if k == nil {
		(*b)[next.ContainerID] = &next
		return
	}
	k.Set, k.pending, k.missed = next.Set, 0, 0
	if next.Step > 0 {
		k.Step = next.Step
	}
}

// reconcile gives up what somebody else has changed, such as a kubelet that resizes a pod or has MemoryQoS, whose value is the new original;
// and who is gone.
func (b throttleRecords[L]) reconcile(o *Observation, kind limitKind[L]) {
	if len(b) == 0 {
		return
	}
	for _, k := range b {
		k.missed++
	}
	for i := range o.Pods {
		for j := range o.Pods[i].Containers {
			c := &o.Pods[i].Containers[j]
			k := b[c.ID]
			if k == nil {
				continue
			}
			k.missed = 0
			if now := kind.inForce(c); now > 0 && !kind.same(now, k.Set) && (k.pending == 0 || !kind.same(now, k.pending)) {
				delete(b, c.ID)
			}
		}
	}
	for id, k := range b {
		if k.missed > forgetAfter {
			delete(b, id)
		}
	}
}

// limitKind is how limits of a resource differ from those of the other.
type limitKind[L limit] struct {
	resource Resource
	inForce  func(*Container) L
	// same tells whether two limits are equal but for the kernel's rounding.
	same func(a, b L) bool
	// raise is the next limit of a throttled container, the present one where there is no room for more.
	raise func(k *throttleRecord[L], room float64) L
}

// limitKey names a limit of a container, that of cpu or that of memory.
type limitKey struct {
	resource  Resource
	container string
}

// restoreStep is a limit that is raised.
type restoreStep[L limit] struct {
	pod       *Pod
	container *Container
	record    *throttleRecord[L]
	to        L
	// gain is how much more may be used by it.
	gain   L
	reason string
}

// planRestore finds what is given back of a resource: to containers that no rule holds down any more, the most important first, by a step at
// each measurement and never so much that a rule would fire again if it were used at once. Where no rule could throttle the pod any
// more, all is given back at once.
func planRestore[L limit](d *decision, b throttleRecords[L], kind limitKind[L]) []restoreStep[L] {
	if len(b) == 0 {
		return nil
	}
	var out []restoreStep[L]
	given, stepped := 0.0, false
	for _, p := range d.mostImportant(b.contains) {
		room, held, bound := d.headroom(p, kind.resource)
		if held {
			continue
		}
		for i := range p.Containers {
			c := &p.Containers[i]
			k := b[c.ID]
			if k == nil || kind.inForce(c) <= 0 || d.changed[limitKey{kind.resource, c.ID}] {
				continue
			}
			to, why := k.Original, "no rule throttles this pod any more"
			switch {
			case bound && math.IsInf(room, 1):
				// Nothing says how much the node can bear: a step of one container, and the next measurement decides on.
				if stepped {
					continue
				}
				to, why = kind.raise(k, room), "the node is calm"
				stepped, d.state.lastProbe = true, d.observation.At
			case bound:
				to = kind.raise(k, room-given)
				why = fmt.Sprintf("the node is calm, %s are free below the threshold and its margin", kind.resource.format(room-given))
			}
			if kind.same(to, kind.inForce(c)) {
				continue
			}
			g := restoreStep[L]{pod: p, container: c, record: k, to: to, gain: k.gain(to), reason: why}
			given += float64(g.gain)
			out = append(out, g)
		}
	}
	return out
}

// gain is how much more a container may use with a limit.
func (k *throttleRecord[L]) gain(to L) L {
	if to == noLimit {
		to = max(k.Before, k.Set)
	}
	return to - k.Set
}

// restoreTarget is where steps back end: the original, or what was used before where that is no limit.
func (k *throttleRecord[L]) restoreTarget() L {
	if k.Original == noLimit {
		return max(k.Before, k.Set)
	}
	return k.Original
}
