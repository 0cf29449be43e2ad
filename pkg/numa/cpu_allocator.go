// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"maps"
	"slices"
)

// Policy determines the CPUs of an owner.
type Policy string

// PolicyNone owners run on all shared CPUs. PolicyExclusive owners have CPUs on which no other owner runs. PolicyNUMA owners share those
// of their zones. PolicyImmovable owners have fixed CPUs, which sharing owners may use, but no other exclusive or immovable one.
const (
	PolicyNone      Policy = "none"
	PolicyExclusive Policy = "exclusive"
	PolicyNUMA      Policy = "numa"
	PolicyImmovable Policy = "immovable"
)

// CPUAllocator assigns the CPUs of a machine to owners. No CPU is assigned to two exclusive or immovable owners, and no reserved CPU to
// any; owners that share zones keep as many CPUs there as they requested; and at least one CPU is always shared.
type CPUAllocator struct {
	layout      *Layout
	reserved    CPUSet
	allocations map[string]allocation
}

type allocation struct {
	policy Policy
	cpus   CPUSet         // of exclusive and immovable owners
	counts map[string]int // by zone, of NUMA owners
}

// NewCPUAllocator returns an allocator without owners.
func NewCPUAllocator(layout *Layout, reserved CPUSet) *CPUAllocator {
	return &CPUAllocator{layout: layout, reserved: reserved.Intersection(layout.all), allocations: map[string]allocation{}}
}

// Allocate assigns CPUs to an owner by policy, counts in each zone (ignored for PolicyNone). It keeps as many of the owner's previous
// CPUs had as possible, now reserved ones only if the zone has no others. It replaces the owner's allocation. If a zone has too few CPUs,
// or no shared CPU would be left, it changes nothing and returns an error.
func (l *CPUAllocator) Allocate(owner string, policy Policy, counts map[string]int, had CPUSet) error {
	before, held := l.allocations[owner]
	delete(l.allocations, owner)

	h, err := l.planAllocation(owner, policy, counts, had)
	if err == nil {
		l.allocations[owner] = h
	} else if held {
		l.allocations[owner] = before
	}

	return err
}

func (l *CPUAllocator) planAllocation(owner string, policy Policy, counts map[string]int, had CPUSet) (allocation, error) {
	h := allocation{policy: policy}
	switch policy {
	case PolicyNone:
		return h, nil
	case PolicyNUMA, PolicyExclusive, PolicyImmovable:
	default:
		return h, fmt.Errorf("policy %q is not %s, %s, %s or %s", policy, PolicyNone, PolicyExclusive, PolicyNUMA, PolicyImmovable)
	}

	for _, zone := range slices.Sorted(maps.Keys(counts)) {
		n := counts[zone]
		room := l.unallocated(zone)
		spare := l.Available(zone)

		var lost CPUSet // previous CPUs that are now reserved
		if policy != PolicyNUMA {
			lost = had.Intersection(l.layout.zones[zone]).Intersection(l.reserved).Difference(l.pinned())
		}

		if n < 0 || n > spare+lost.Len() {
			return h, fmt.Errorf("%d CPUs of zone %q requested for %s, %d are available", n, zone, owner, spare)
		}

		if policy == PolicyNUMA {
			continue
		}

		h.cpus = h.cpus.Union(l.takePreferring(had, room, min(n, spare)))
		rest, _ := l.layout.Take(lost, max(0, n-spare))
		h.cpus = h.cpus.Union(rest)
	}

	if policy == PolicyNUMA {
		h.counts = maps.Clone(counts)
	}

	if policy == PolicyExclusive && l.Shared().Difference(h.cpus) == (CPUSet{}) {
		return h, fmt.Errorf("%d CPUs for %s would leave none to share", h.cpus.Len(), owner)
	}

	return h, nil
}

// takePreferring takes n of the free CPUs, those of had first.
func (l *CPUAllocator) takePreferring(had, room CPUSet, n int) CPUSet {
	own := had.Intersection(room)
	if own.Len() >= n {
		cpus, _ := l.layout.Take(own, n)
		return cpus
	}

	more, _ := l.layout.Take(room.Difference(own), n-own.Len())
	return own.Union(more)
}

// Available returns how many CPUs of a zone can be allocated.
func (l *CPUAllocator) Available(zone string) int {
	return max(0, l.unallocated(zone).Len()-l.promised(zone))
}

// Restore records CPUs that an owner had before, such as those of a state file, including reserved ones: Allocate replaces them. It
// returns an error for unknown or pinned CPUs, and if no shared CPU would be left.
func (l *CPUAllocator) Restore(owner string, policy Policy, cpus CPUSet) error {
	if policy != PolicyExclusive && policy != PolicyImmovable {
		return fmt.Errorf("%s: policy %q has no CPUs of its own", owner, policy)
	}

	if bad := cpus.Difference(l.layout.all.Difference(l.pinned())); bad.Len() > 0 {
		return fmt.Errorf("%s: CPUs %s are unknown or belong to another owner", owner, bad)
	}

	if _, ok := l.allocations[owner]; ok {
		return fmt.Errorf("%s already has CPUs", owner)
	}

	if policy == PolicyExclusive && l.Shared().Difference(cpus) == (CPUSet{}) {
		return fmt.Errorf("%s: CPUs %s would leave none to share", owner, cpus)
	}

	l.allocations[owner] = allocation{policy: policy, cpus: cpus}
	return nil
}

// Policy returns the policy of an owner; false if it has no allocation.
func (l *CPUAllocator) Policy(owner string) (Policy, bool) {
	h, ok := l.allocations[owner]
	return h.policy, ok
}

// Release removes the allocation of an owner.
func (l *CPUAllocator) Release(owner string) { delete(l.allocations, owner) }

// CPUs returns the CPUs on which an owner runs; those of sharing owners depend on other owners.
func (l *CPUAllocator) CPUs(owner string) CPUSet {
	h := l.allocations[owner]
	switch h.policy {
	case PolicyExclusive, PolicyImmovable:
		return h.cpus

	case PolicyNUMA:
		var zones CPUSet
		for zone, n := range h.counts {
			if n > 0 {
				zones = zones.Union(l.layout.zones[zone])
			}
		}

		return zones.Intersection(l.Shared()).Difference(l.reserved)

	default:
		return l.Shared()
	}
}

// Shared returns all CPUs that are not exclusive, including reserved ones.
func (l *CPUAllocator) Shared() CPUSet {
	shared := l.layout.all
	for _, h := range l.allocations {
		if h.policy == PolicyExclusive {
			shared = shared.Difference(h.cpus)
		}
	}

	return shared
}

// pinned returns the CPUs of exclusive and immovable owners.
func (l *CPUAllocator) pinned() (cpus CPUSet) {
	for _, h := range l.allocations {
		cpus = cpus.Union(h.cpus)
	}

	return cpus
}

// unallocated returns the CPUs of a zone that are neither reserved nor pinned.
func (l *CPUAllocator) unallocated(zone string) CPUSet {
	return l.layout.zones[zone].Difference(l.reserved).Difference(l.pinned())
}

// promised returns how many CPUs of a zone its sharing owners requested.
func (l *CPUAllocator) promised(zone string) (n int) {
	for _, h := range l.allocations {
		n += h.counts[zone]
	}

	return n
}
