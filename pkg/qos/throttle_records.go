// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"

	"crane.io/crane/pkg/series"
)

// limit is a CPU or memory limit in force; 0 means unknown, noLimit none.
type limit interface{ Quota | MemoryHigh }

// noLimit is Unlimited and NoMemoryHigh.
const noLimit = math.MaxInt64

// throttleRecord describes a throttled container.
type throttleRecord[L limit] struct {
	Pod         PodRef
	ContainerID string
	// Original is the limit before the first throttle, Set the limit last written.
	Original, Set L
	// Before is the use at the first throttle: a container without a limit of its own is restored up to it in steps.
	Before L
	// Step is the last share by which the CPU quota was lowered.
	Step series.Ratio

	// pending is a limit being written.
	pending L
	missed  int
}

// forgetAfter is the number of observations without a container after which its record is dropped.
const forgetAfter = 60

// throttleRecords holds the records of a resource by container ID.
type throttleRecords[L limit] map[string]*throttleRecord[L]

// contains reports whether a container is throttled.
func (b throttleRecords[L]) contains(container string) bool { return b[container] != nil }

// record adds a written limit: the first one of a container with its original, later ones as further steps.
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

	k.Set = next.Set
	k.pending = 0
	k.missed = 0
	if next.Step > 0 {
		k.Step = next.Step
	}
}

// reconcile drops records of containers whose limit another process changed, as a kubelet that resizes a pod or uses MemoryQoS, and of
// containers that are gone. The changed limit becomes the new original.
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

// limitKind describes how the limits of a resource are read, compared and raised.
type limitKind[L limit] struct {
	resource series.Resource
	inForce  func(*Container) L
	// same compares two limits up to the kernel's rounding.
	same func(a, b L) bool
	// raise returns the next limit of a throttled container, the current one if the headroom is too small.
	raise func(k *throttleRecord[L], room float64) L
}

// limitKey identifies a CPU or memory limit of a container.
type limitKey struct {
	resource  series.Resource
	container string
}

// restoreStep raises a limit.
type restoreStep[L limit] struct {
	pod       *Pod
	container *Container
	record    *throttleRecord[L]
	to        L
	// gain is the additional use it allows.
	gain   L
	reason string
}

// planRestore plans the limits of a resource to raise: of containers that no rule throttles now, the most important first, one step per
// measurement and never beyond the headroom. If no rule may throttle the pod any more, the original limit is restored at once.
func planRestore[L limit](d decision, findings []Finding, changed map[limitKey]bool, b throttleRecords[L], kind limitKind[L]) []restoreStep[L] {
	if len(b) == 0 {
		return nil
	}

	var out []restoreStep[L]
	given := 0.0
	stepped := false
	for _, p := range d.observation.mostImportant(b.contains) {
		room, held, bound := d.headroom(findings, p, kind.resource)
		if held {
			continue
		}

		for i := range p.Containers {
			c := &p.Containers[i]
			k := b[c.ID]
			if k == nil || kind.inForce(c) <= 0 || changed[limitKey{kind.resource, c.ID}] {
				continue
			}

			to := k.Original
			why := "no rule throttles this pod any more"
			switch {
			case bound && math.IsInf(room, 1):
				// The headroom is unknown: raise one container by a step and wait for the next measurement.
				if stepped {
					continue
				}

				to = kind.raise(k, room)
				why = "the node is calm"
				stepped = true
				d.state.lastProbe = d.observation.At

			case bound:
				to = kind.raise(k, room-given)
				why = fmt.Sprintf("the node is calm, %s is free below the threshold and its margin", formatAmount(kind.resource, room-given))
			}

			if kind.same(to, kind.inForce(c)) {
				continue
			}

			g := restoreStep[L]{
				pod:       p,
				container: c,
				record:    k,
				to:        to,
				gain:      k.gain(to),
				reason:    why,
			}

			given += float64(g.gain)
			out = append(out, g)
		}
	}

	return out
}

// gain returns the additional use that a limit allows.
func (k *throttleRecord[L]) gain(to L) L {
	if to == noLimit {
		to = max(k.Before, k.Set)
	}

	return to - k.Set
}

// restoreTarget returns where steps end: at the original limit, or at the use before the first throttle if that is unlimited.
func (k *throttleRecord[L]) restoreTarget() L {
	if k.Original == noLimit {
		return max(k.Before, k.Set)
	}

	return k.Original
}
