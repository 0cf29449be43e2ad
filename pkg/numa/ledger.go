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
// ones are given to nobody; those who share zones keep as many CPUs there as they asked for; and some CPU is always left to share.
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

// Hold gives owner CPUs by policy, counts of them in each zone (for None they mean nothing). It ran on the CPUs had before, of which it keeps
// as many as it can; those that are reserved by now only where the zone has no others. An owner that holds something gets the new in its
// place. Where a zone has not as many, or nobody would be left a CPU to share, nothing changes and the error says what is missing.
func (l *Ledger) Hold(owner string, policy Policy, counts map[string]int, had CPUSet) error {
	before, held := l.holders[owner]
	delete(l.holders, owner)
	h, err := l.choose(owner, policy, counts, had)
	if err == nil {
		l.holders[owner] = h
	} else if held {
		l.holders[owner] = before
	}
	return err
}

func (l *Ledger) choose(owner string, policy Policy, counts map[string]int, had CPUSet) (holder, error) {
	h := holder{policy: policy}
	switch policy {
	case PolicyNone:
		return h, nil
	case PolicyNUMA, PolicyExclusive, PolicyImmovable:
	default:
		return h, fmt.Errorf("policy %q, want %s, %s, %s or %s", policy, PolicyNone, PolicyExclusive, PolicyNUMA, PolicyImmovable)
	}
	for _, zone := range slices.Sorted(maps.Keys(counts)) {
		n, room, spare := counts[zone], l.room(zone), l.Spare(zone)
		var lost CPUSet // what it had of the zone and what is reserved now
		if policy != PolicyNUMA {
			lost = had.Intersection(l.layout.zones[zone]).Intersection(l.reserved).Difference(l.fixed())
		}
		if n < 0 || n > spare+lost.Len() {
			return h, fmt.Errorf("%d CPUs of zone %q for %s, of which %d are left", n, zone, owner, spare)
		}
		if policy == PolicyNUMA {
			continue
		}
		h.cpus = h.cpus.Union(l.prefer(had, room, min(n, spare)))
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

// prefer takes n CPUs of room, those of had first.
func (l *Ledger) prefer(had, room CPUSet, n int) CPUSet {
	own := had.Intersection(room)
	if own.Len() >= n {
		cpus, _ := l.layout.Take(own, n)
		return cpus
	}
	more, _ := l.layout.Take(room.Difference(own), n-own.Len())
	return own.Union(more)
}

// Spare is how many CPUs of a zone can still be asked for.
func (l *Ledger) Spare(zone string) int { return max(0, l.room(zone).Len()-l.promised(zone)) }

// Adopt records CPUs that owner had before, such as those of a state file, reserved ones included: Hold looks for others. It refuses CPUs
// that are not the machine's or that another has, and all where nobody would be left a CPU to share.
func (l *Ledger) Adopt(owner string, policy Policy, cpus CPUSet) error {
	if policy != PolicyExclusive && policy != PolicyImmovable {
		return fmt.Errorf("%s: CPUs of its own with policy %q", owner, policy)
	}
	if bad := cpus.Difference(l.layout.all.Difference(l.fixed())); bad.Len() > 0 {
		return fmt.Errorf("%s: the CPUs %s are another's or not there", owner, bad)
	}
	if _, ok := l.holders[owner]; ok {
		return fmt.Errorf("%s holds CPUs already", owner)
	}
	if policy == PolicyExclusive && l.Shared().Difference(cpus) == (CPUSet{}) {
		return fmt.Errorf("%s: the CPUs %s are all that is left to share", owner, cpus)
	}
	l.holders[owner] = holder{policy: policy, cpus: cpus}
	return nil
}

// Policy is that by which owner holds CPUs; false where it holds none.
func (l *Ledger) Policy(owner string) (Policy, bool) {
	h, ok := l.holders[owner]
	return h.policy, ok
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
