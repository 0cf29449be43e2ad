// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"fmt"
	"slices"
)

// Thread is a CPU as Linux counts it: a hardware thread, of a physical core, of a zone. All numbers may have gaps.
type Thread struct {
	CPU  int
	Core int // unique within the machine, not only within its socket
	Zone string
}

// Layout is which CPU belongs to which core and zone.
type Layout struct {
	threads map[int]Thread
	zones   map[string]CPUSet
	cores   map[int]CPUSet
	all     CPUSet
}

// NewLayout refuses a CPU that stands twice, one without a zone or out of range, and a core in two zones.
func NewLayout(threads []Thread) (*Layout, error) {
	l := &Layout{threads: map[int]Thread{}, zones: map[string]CPUSet{}, cores: map[int]CPUSet{}}
	zone, zones, cores := map[int]string{}, map[string][]int{}, map[int][]int{}
	all := make([]int, 0, len(threads))
	for _, t := range threads {
		if _, twice := l.threads[t.CPU]; twice || t.CPU < 0 || t.CPU > MaxCPU || t.Zone == "" {
			return nil, fmt.Errorf("CPU %d (core %d, zone %q): stands twice, has no zone, or is not between 0 and %d", t.CPU, t.Core, t.Zone, MaxCPU)
		}
		if z, known := zone[t.Core]; known && z != t.Zone {
			return nil, fmt.Errorf("core %d is in the zones %q and %q", t.Core, z, t.Zone)
		}
		zone[t.Core] = t.Zone
		l.threads[t.CPU] = t
		zones[t.Zone], cores[t.Core], all = append(zones[t.Zone], t.CPU), append(cores[t.Core], t.CPU), append(all, t.CPU)
	}
	for name, cpus := range zones {
		l.zones[name] = NewCPUSet(cpus...)
	}
	for id, cpus := range cores {
		l.cores[id] = NewCPUSet(cpus...)
	}
	l.all = NewCPUSet(all...)
	return l, nil
}

// All are the machine's CPUs.
func (l *Layout) All() CPUSet { return l.all }

// ZoneCPUs are the CPUs of a zone; none where there is no such zone.
func (l *Layout) ZoneCPUs(name string) CPUSet { return l.zones[name] }

// CountByZone is how many CPUs of a set are in each zone; zones without any are left out.
func (l *Layout) CountByZone(cpus CPUSet) map[string]int {
	counts := map[string]int{}
	for zone, all := range l.zones {
		if n := all.Intersection(cpus).Len(); n > 0 {
			counts[zone] = n
		}
	}
	return counts
}

// Take chooses n CPUs of free, or says false where there are fewer. It takes whole physical cores as long as it can, then
// fills up from the cores of which the fewest threads are free, and breaks a whole core only at the end: so that the
// fewest cores are shared between holders. Among equals the lowest CPU comes first.
func (l *Layout) Take(free CPUSet, n int) (CPUSet, bool) {
	free = free.Intersection(l.all)
	if n < 0 || free.Len() < n {
		return CPUSet{}, false
	}
	type core struct {
		cpus  []int
		whole bool
	}
	byCore := map[int]*core{}
	for c := range free.All() {
		id := l.threads[c].Core
		if byCore[id] == nil {
			byCore[id] = &core{}
		}
		byCore[id].cpus = append(byCore[id].cpus, c)
	}
	cores := make([]*core, 0, len(byCore))
	for id, c := range byCore {
		c.whole = len(c.cpus) == l.cores[id].Len()
		cores = append(cores, c)
	}
	slices.SortFunc(cores, func(a, b *core) int { return cmp.Compare(a.cpus[0], b.cpus[0]) })
	var taken []int
	for _, c := range cores {
		if c.whole && len(c.cpus) <= n-len(taken) {
			taken = append(taken, c.cpus...)
			c.cpus = nil
		}
	}
	slices.SortStableFunc(cores, func(a, b *core) int { return cmp.Compare(len(a.cpus), len(b.cpus)) })
	for _, whole := range []bool{false, true} {
		for _, c := range cores {
			if c.whole == whole {
				taken = append(taken, c.cpus[:min(len(c.cpus), n-len(taken))]...)
			}
		}
	}
	return NewCPUSet(taken...), true
}
