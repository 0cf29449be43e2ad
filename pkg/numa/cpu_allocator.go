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
// CPUs as possible, now reserved ones only if the zone has no others. It replaces the owner's allocation. If a zone has too few CPUs, or
// no shared CPU would be left, it changes nothing and returns an error.
func (a *CPUAllocator) Allocate(owner string, policy Policy, counts map[string]int, previous CPUSet) error {
	before, ok := a.allocations[owner]
	delete(a.allocations, owner)

	alloc, err := a.planAllocation(owner, policy, counts, previous)
	if err == nil {
		a.allocations[owner] = alloc
	} else if ok {
		a.allocations[owner] = before
	}

	return err
}

func (a *CPUAllocator) planAllocation(owner string, policy Policy, counts map[string]int, previous CPUSet) (allocation, error) {
	alloc := allocation{policy: policy}
	switch policy {
	case PolicyNone:
		return alloc, nil
	case PolicyNUMA, PolicyExclusive, PolicyImmovable:
	default:
		return alloc, fmt.Errorf("policy %q is not %s, %s, %s or %s", policy, PolicyNone, PolicyExclusive, PolicyNUMA, PolicyImmovable)
	}

	for _, zone := range slices.Sorted(maps.Keys(counts)) {
		n := counts[zone]
		free := a.unallocated(zone)
		spare := a.Available(zone)

		var lost CPUSet // previous CPUs that are now reserved
		if policy != PolicyNUMA {
			lost = previous.Intersection(a.layout.zones[zone]).Intersection(a.reserved).Difference(a.pinned())
		}

		if n < 0 || n > spare+lost.Len() {
			return alloc, fmt.Errorf("%d CPUs of zone %q requested for %s, %d are available", n, zone, owner, spare)
		}

		if policy == PolicyNUMA {
			continue
		}

		alloc.cpus = alloc.cpus.Union(a.takePreferring(previous, free, min(n, spare)))
		rest, _ := a.layout.Take(lost, max(0, n-spare))
		alloc.cpus = alloc.cpus.Union(rest)
	}

	if policy == PolicyNUMA {
		alloc.counts = maps.Clone(counts)
	}

	if policy == PolicyExclusive && a.Shared().Difference(alloc.cpus) == (CPUSet{}) {
		return alloc, fmt.Errorf("%d CPUs for %s would leave none to share", alloc.cpus.Len(), owner)
	}

	return alloc, nil
}

// takePreferring takes n of the free CPUs, those of previous first.
func (a *CPUAllocator) takePreferring(previous, free CPUSet, n int) CPUSet {
	retained := previous.Intersection(free)
	if retained.Len() >= n {
		cpus, _ := a.layout.Take(retained, n)
		return cpus
	}

	more, _ := a.layout.takeBeside(retained, free, n-retained.Len())
	return retained.Union(more)
}

// Available returns how many CPUs of a zone can be allocated.
func (a *CPUAllocator) Available(zone string) int {
	return max(0, a.unallocated(zone).Len()-a.promised(zone))
}

// Restore records CPUs that an owner had before, such as those of a state file, including reserved ones: Allocate replaces them. It
// returns an error for unknown or pinned CPUs, and if no shared CPU would be left.
func (a *CPUAllocator) Restore(owner string, policy Policy, cpus CPUSet) error {
	if policy != PolicyExclusive && policy != PolicyImmovable {
		return fmt.Errorf("%s: policy %q has no CPUs of its own", owner, policy)
	}

	if bad := cpus.Difference(a.layout.all.Difference(a.pinned())); bad.Len() > 0 {
		return fmt.Errorf("%s: CPUs %s are unknown or belong to another owner", owner, bad)
	}

	if _, ok := a.allocations[owner]; ok {
		return fmt.Errorf("%s already has CPUs", owner)
	}

	if policy == PolicyExclusive && a.Shared().Difference(cpus) == (CPUSet{}) {
		return fmt.Errorf("%s: CPUs %s would leave none to share", owner, cpus)
	}

	a.allocations[owner] = allocation{policy: policy, cpus: cpus}
	return nil
}

// Policy returns the policy of an owner; false if it has no allocation.
func (a *CPUAllocator) Policy(owner string) (Policy, bool) {
	alloc, ok := a.allocations[owner]
	return alloc.policy, ok
}

// Release removes the allocation of an owner.
func (a *CPUAllocator) Release(owner string) { delete(a.allocations, owner) }

// CPUs returns the CPUs on which an owner runs; those of sharing owners depend on other owners.
func (a *CPUAllocator) CPUs(owner string) CPUSet {
	alloc := a.allocations[owner]
	switch alloc.policy {
	case PolicyExclusive, PolicyImmovable:
		return alloc.cpus

	case PolicyNUMA:
		var zones CPUSet
		for zone, n := range alloc.counts {
			if n > 0 {
				zones = zones.Union(a.layout.zones[zone])
			}
		}

		return zones.Intersection(a.Shared()).Difference(a.reserved)

	default:
		return a.Shared()
	}
}

// Shared returns all CPUs that are not exclusive, including reserved ones.
func (a *CPUAllocator) Shared() CPUSet {
	shared := a.layout.all
	for _, alloc := range a.allocations {
		if alloc.policy == PolicyExclusive {
			shared = shared.Difference(alloc.cpus)
		}
	}

	return shared
}

// pinned returns the CPUs of exclusive and immovable owners.
func (a *CPUAllocator) pinned() (cpus CPUSet) {
	for _, alloc := range a.allocations {
		cpus = cpus.Union(alloc.cpus)
	}

	return cpus
}

// unallocated returns the CPUs of a zone that are neither reserved nor pinned.
func (a *CPUAllocator) unallocated(zone string) CPUSet {
	return a.layout.zones[zone].Difference(a.reserved).Difference(a.pinned())
}

// promised returns how many CPUs of a zone its sharing owners requested.
func (a *CPUAllocator) promised(zone string) (n int) {
	for _, alloc := range a.allocations {
		n += alloc.counts[zone]
	}

	return n
}
