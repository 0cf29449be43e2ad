// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"

	"crane.io/crane/pkg/units"
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
	Step units.Ratio

	// pending is a limit being written.
	pending L
	missed  int
	// inherited means that a previous process set the limit and this one has not changed it.
	inherited bool
}

// forgetAfter is the number of observations without a container after which its record is dropped.
const forgetAfter = 60

// throttleRecords holds the records of a resource by container ID.
type throttleRecords[L limit] map[string]*throttleRecord[L]

// contains reports whether a container is throttled.
func (r throttleRecords[L]) contains(container string) bool { return r[container] != nil }

// isOwn reports whether a container is throttled and this process set its limit.
func (r throttleRecords[L]) isOwn(container string) bool {
	record := r[container]
	return record != nil && !record.inherited
}

// inherit adds a limit that a previous process set.
func (r *throttleRecords[L]) inherit(container string, original, set L) {
	if set <= 0 || original <= set || r.contains(container) {
		return
	}

	if *r == nil {
		*r = throttleRecords[L]{}
	}

	(*r)[container] = &throttleRecord[L]{
		ContainerID: container,
		Original:    original,
		Set:         set,
		inherited:   true,
	}
}

// own makes the inherited limits this process's.
func (r throttleRecords[L]) own() {
	for _, record := range r {
		record.inherited = false
	}
}

// record adds a written limit: the first one of a container with its original, later ones as further steps.
func (r *throttleRecords[L]) record(next throttleRecord[L]) {
	if next.Set == next.Original {
		delete(*r, next.ContainerID)
		return
	}

	if *r == nil {
		*r = throttleRecords[L]{}
	}

	existing := (*r)[next.ContainerID]
	if existing == nil {
		(*r)[next.ContainerID] = &next
		return
	}

	existing.Set = next.Set
	existing.pending = 0
	existing.missed = 0
	existing.inherited = false
	// The use before the first throttle of an inherited limit is unknown.
	if existing.Before <= 0 {
		existing.Before = next.Before
	}
	if next.Step > 0 {
		existing.Step = next.Step
	}
}

// reconcile drops records of containers whose limit another process changed, as a kubelet that resizes a pod or uses MemoryQoS, and of
// containers that are gone. The changed limit becomes the new original.
func (r throttleRecords[L]) reconcile(o *Observation, kind limitKind[L]) {
	if len(r) == 0 {
		return
	}

	for _, record := range r {
		record.missed++
	}

	for i := range o.Pods {
		for j := range o.Pods[i].Containers {
			c := &o.Pods[i].Containers[j]
			record := r[c.ID]
			if record == nil {
				continue
			}

			// A throttle that is being written may or may not be in force yet.
			record.missed = 0
			limit := kind.inForce(c)

			foreign := limit > 0 && !kind.same(limit, record.Set) && (record.pending == 0 || !kind.same(limit, record.pending))
			if foreign {
				delete(r, c.ID)
			}
		}
	}

	for id, record := range r {
		if record.missed > forgetAfter && !record.inherited {
			delete(r, id)
		}
	}
}

// limitKind describes how the limits of a resource are read, compared and raised.
type limitKind[L limit] struct {
	resource units.Resource
	inForce  func(*Container) L
	// same compares two limits up to the kernel's rounding.
	same func(a, b L) bool
	// floor returns what the container requests.
	floor func(*Container) L
	// raise returns the next limit of a throttled container, the current one if the headroom is too small.
	raise func(k *throttleRecord[L], room float64) L
}

// limitKey identifies a CPU or memory limit of a container.
type limitKey struct {
	resource  units.Resource
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
// measurement and never beyond the headroom. If no rule may throttle the pod any more, the original limit is restored at once. Inherited limits
// are raised to what the container requests, and else stay.
func planRestore[L limit](d decision, findings []Finding, changed map[limitKey]bool, records throttleRecords[L], kind limitKind[L]) []restoreStep[L] {
	if len(records) == 0 {
		return nil
	}

	var out []restoreStep[L]
	restored := 0.0
	stepped := false
	for _, p := range d.observation.mostImportant(records.contains) {
		room, blocked, mayThrottle := d.headroom(findings, p, kind.resource)
		for i := range p.Containers {
			c := &p.Containers[i]
			record := records[c.ID]
			if record == nil || kind.inForce(c) <= 0 || changed[limitKey{kind.resource, c.ID}] {
				continue
			}

			// A resize may have raised the request above the limit of an earlier step, whatever the rules say now.
			if floor := min(kind.floor(c), record.Original); floor > kind.inForce(c) && !kind.same(floor, kind.inForce(c)) {
				step := restoreStep[L]{
					pod:       p,
					container: c,
					record:    record,
					to:        floor,
					gain:      record.gain(floor),
					reason:    "the container requests more than this limit",
				}

				restored += float64(step.gain)
				out = append(out, step)
				continue
			}

			if blocked || record.inherited {
				continue
			}

			to := record.Original
			why := "no rule throttles this pod any more"
			switch {
			case mayThrottle && math.IsInf(room, 1):
				// The headroom is unknown: raise one container by a step and wait for the next measurement.
				if stepped {
					continue
				}

				to = kind.raise(record, room)
				why = "the node is calm"
				stepped = true
				d.state.lastProbe = d.observation.At

			case mayThrottle:
				to = kind.raise(record, room-restored)
				why = fmt.Sprintf("the node is calm, %s is free below the threshold and its margin", formatAmount(kind.resource, room-restored))
			}

			if kind.same(to, kind.inForce(c)) {
				continue
			}

			step := restoreStep[L]{
				pod:       p,
				container: c,
				record:    record,
				to:        to,
				gain:      record.gain(to),
				reason:    why,
			}

			restored += float64(step.gain)
			out = append(out, step)
		}
	}

	return out
}

// gain returns the additional use that a limit allows.
func (r *throttleRecord[L]) gain(to L) L {
	if to == noLimit {
		to = max(r.Before, r.Set)
	}

	return to - r.Set
}

// restoreTarget returns where steps end: at the original limit, or at the use before the first throttle if that is unlimited.
func (r *throttleRecord[L]) restoreTarget() L {
	if r.Original == noLimit {
		return max(r.Before, r.Set)
	}

	return r.Original
}
