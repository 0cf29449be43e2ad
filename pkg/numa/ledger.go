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

// Ledger says who runs on which CPUs of a machine. No CPU is given to two holders that are Exclusive or Immovable; reserved
// ones are given to nobody; and those who share zones keep as many CPUs there as they asked for.
type Ledger struct {
	layout   *Layout
	reserved CPUSet
	holders  map[string]holder
}

type holder struct {
	policy Policy
	cpus   CPUSet         // of Exclusive and Immovable
	counts map[string]int // by zone, of NUMA
}

// NewLedger returns a ledger where nobody runs.
func NewLedger(layout *Layout, reserved CPUSet) *Ledger {
	return &Ledger{layout: layout, reserved: reserved.Intersection(layout.all), holders: map[string]holder{}}
}

// Allocate gives owner CPUs by policy, counts of them in each zone (for None they mean nothing). Where a zone has not as
// many, nothing changes and the error says what is missing. An owner that holds something already keeps it.
func (l *Ledger) Allocate(owner string, policy Policy, counts map[string]int) error {
	if _, ok := l.holders[owner]; ok {
		return nil
	}
	h := holder{policy: policy}
	switch policy {
	case PolicyNone:
	case PolicyNUMA, PolicyExclusive, PolicyImmovable:
		for _, zone := range slices.Sorted(maps.Keys(counts)) {
			n := counts[zone]
			room := l.room(zone)
			if spare := room.Len() - l.promised(zone); n < 0 || n > spare {
				return fmt.Errorf("%d CPUs of zone %q for %s, of which %d are left", n, zone, owner, max(0, spare))
			}
			if policy != PolicyNUMA {
				cpus, _ := l.layout.Take(room, n)
				h.cpus = h.cpus.Union(cpus)
			}
		}
		if policy == PolicyNUMA {
			h.counts = maps.Clone(counts)
		}
	default:
		return fmt.Errorf("policy %q, want %s, %s, %s or %s", policy, PolicyNone, PolicyExclusive, PolicyNUMA, PolicyImmovable)
	}
	l.holders[owner] = h
	return nil
}

// Adopt records CPUs that owner had before, such as those of a state file. It refuses CPUs that are not the machine's, that
// are reserved, or that another has.
func (l *Ledger) Adopt(owner string, policy Policy, cpus CPUSet) error {
	if policy != PolicyExclusive && policy != PolicyImmovable {
		return fmt.Errorf("%s: CPUs of its own with policy %q", owner, policy)
	}
	free := l.layout.all.Difference(l.reserved).Difference(l.fixed())
	if bad := cpus.Difference(free); bad.Len() > 0 {
		return fmt.Errorf("%s: the CPUs %s are reserved, another's or not there", owner, bad)
	}
	if _, ok := l.holders[owner]; ok {
		return fmt.Errorf("%s holds CPUs already", owner)
	}
	l.holders[owner] = holder{policy: policy, cpus: cpus}
	return nil
}

// Release takes from owner what it holds.
func (l *Ledger) Release(owner string) { delete(l.holders, owner) }

// CPUs are those on which owner runs now; of those who share they change when others come and go. Who holds nothing shares.
func (l *Ledger) CPUs(owner string) CPUSet {
	h := l.holders[owner]
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
func (l *Ledger) Shared() CPUSet {
	shared := l.layout.all
	for _, h := range l.holders {
		if h.policy == PolicyExclusive {
			shared = shared.Difference(h.cpus)
		}
	}
	return shared
}

// fixed are the CPUs of all that are Exclusive or Immovable.
func (l *Ledger) fixed() (cpus CPUSet) {
	for _, h := range l.holders {
		cpus = cpus.Union(h.cpus)
	}
	return cpus
}

// room are the CPUs of a zone that may still be given.
func (l *Ledger) room(zone string) CPUSet {
	return l.layout.zones[zone].Difference(l.reserved).Difference(l.fixed())
}

// promised is how many CPUs of a zone those who share it have asked for.
func (l *Ledger) promised(zone string) (n int) {
	for _, h := range l.holders {
		n += h.counts[zone]
	}
	return n
}
