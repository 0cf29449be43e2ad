// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"maps"
	"slices"
)

// Policy says which CPUs a holder runs on.
type Policy string

// None runs on all that nobody has alone. Exclusive has CPUs that nobody else runs on. NUMA shares those of its zones.
// Immovable has fixed CPUs, on which those who share may run too, but no other that is Exclusive or Immovable.
const (
	PolicyNone      Policy = "none"
	PolicyExclusive Policy = "exclusive"
	PolicyNUMA      Policy = "numa"
	PolicyImmovable Policy = "immovable"
)

// CPUAllocator says who runs on which CPUs of a machine. No CPU is given to two holders that are Exclusive or Immovable; reserved
// ones are given to nobody; those who share zones keep as many CPUs there as they asked for; and some CPU is always left to share.
type CPUAllocator struct {
	layout      *Layout
	reserved    CPUSet
	allocations map[string]allocation
}

type allocation struct {
	policy Policy
	cpus   CPUSet         // of Exclusive and Immovable
	counts map[string]int // by zone, of NUMA
}

// NewCPUAllocator returns a ledger where nobody runs.
func NewCPUAllocator(layout *Layout, reserved CPUSet) *CPUAllocator {
	return &CPUAllocator{layout: layout, reserved: reserved.Intersection(layout.all), allocations: map[string]allocation{}}
}

// Allocate gives owner CPUs by policy, counts of them in each zone (for None they mean nothing). It ran on the CPUs had before, of which it keeps
// as many as it can; those that are reserved by now only where the zone has no others. An owner that holds something gets the new in its
// place. Where a zone has not as many, or nobody would be left a CPU to share, nothing changes and the error says what is missing.
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
		return h, fmt.Errorf("policy %q, want %s, %s, %s or %s", policy, PolicyNone, PolicyExclusive, PolicyNUMA, PolicyImmovable)
	}
	for _, zone := range slices.Sorted(maps.Keys(counts)) {
		n, room, spare := counts[zone], l.unallocated(zone), l.Available(zone)
		var lost CPUSet // what it had of the zone and what is reserved now
		if policy != PolicyNUMA {
			lost = had.Intersection(l.layout.zones[zone]).Intersection(l.reserved).Difference(l.pinned())
		}
		if n < 0 || n > spare+lost.Len() {
			return h, fmt.Errorf("%d CPUs of zone %q for %s, of which %d are left", n, zone, owner, spare)
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
		return h, fmt.Errorf("%d CPUs for %s are all that is left to share", h.cpus.Len(), owner)
	}
	return h, nil
}

// takePreferring takes n CPUs of room, those of had first.
func (l *CPUAllocator) takePreferring(had, room CPUSet, n int) CPUSet {
	own := had.Intersection(room)
	if own.Len() >= n {
		cpus, _ := l.layout.Take(own, n)
		return cpus
	}
	more, _ := l.layout.Take(room.Difference(own), n-own.Len())
	return own.Union(more)
}

// Available is how many CPUs of a zone can still be asked for.
func (l *CPUAllocator) Available(zone string) int {
	return max(0, l.unallocated(zone).Len()-l.promised(zone))
}

// Restore records CPUs that owner had before, such as those of a state file, reserved ones included: Hold looks for others. It refuses CPUs
// that are not the machine's or that another has, and all where nobody would be left a CPU to share.
func (l *CPUAllocator) Restore(owner string, policy Policy, cpus CPUSet) error {
	if policy != PolicyExclusive && policy != PolicyImmovable {
		return fmt.Errorf("%s: CPUs of its own with policy %q", owner, policy)
	}
	if bad := cpus.Difference(l.layout.all.Difference(l.pinned())); bad.Len() > 0 {
		return fmt.Errorf("%s: the CPUs %s are another's or not there", owner, bad)
	}
	if _, ok := l.allocations[owner]; ok {
		return fmt.Errorf("%s holds CPUs already", owner)
	}
	if policy == PolicyExclusive && l.Shared().Difference(cpus) == (CPUSet{}) {
		return fmt.Errorf("%s: the CPUs %s are all that is left to share", owner, cpus)
	}
	l.allocations[owner] = allocation{policy: policy, cpus: cpus}
	return nil
}

// Policy is that by which owner holds CPUs; false where it holds none.
func (l *CPUAllocator) Policy(owner string) (Policy, bool) {
	h, ok := l.allocations[owner]
	return h.policy, ok
}

// Release takes from owner what it holds.
func (l *CPUAllocator) Release(owner string) { delete(l.allocations, owner) }

// CPUs are those on which owner runs now; of those who share they change when others come and go. Who holds nothing shares.
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

// Shared are the CPUs that nobody has alone, reserved ones included.
func (l *CPUAllocator) Shared() CPUSet {
	shared := l.layout.all
	for _, h := range l.allocations {
		if h.policy == PolicyExclusive {
			shared = shared.Difference(h.cpus)
		}
	}
	return shared
}

// pinned are the CPUs of all that are Exclusive or Immovable.
func (l *CPUAllocator) pinned() (cpus CPUSet) {
	for _, h := range l.allocations {
		cpus = cpus.Union(h.cpus)
	}
	return cpus
}

// unallocated are the CPUs of a zone that may still be given.
func (l *CPUAllocator) unallocated(zone string) CPUSet {
	return l.layout.zones[zone].Difference(l.reserved).Difference(l.pinned())
}

// promised is how many CPUs of a zone those who share it have asked for.
func (l *CPUAllocator) promised(zone string) (n int) {
	for _, h := range l.allocations {
		n += h.counts[zone]
	}
	return n
}
