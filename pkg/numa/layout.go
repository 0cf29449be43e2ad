// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import "fmt"

// Thread is a CPU as numbered by Linux: a hardware thread of a core in a zone. Numbers may have gaps.
type Thread struct {
	CPU  int
	Core int // unique on the machine, not only in its socket
	Zone string
	// Cache is the number of the L3 cache from 1; 0 for unknown.
	Cache int
}

// Layout maps CPUs to cores and zones.
type Layout struct {
	threads map[int]Thread
	zones   map[string]CPUSet
	cores   map[int]CPUSet
	all     CPUSet
}

// NewLayout returns an error for duplicate CPUs, CPUs without a zone or out of range, and cores in two zones. Caches may span zones.
func NewLayout(threads []Thread) (*Layout, error) {
	l := &Layout{threads: map[int]Thread{}, zones: map[string]CPUSet{}, cores: map[int]CPUSet{}}
	zoneOfCore := map[int]string{}

	cpusByZone := map[string][]int{}
	cpusByCore := map[int][]int{}
	all := make([]int, 0, len(threads))
	for _, t := range threads {
		if _, twice := l.threads[t.CPU]; twice || t.CPU < 0 || t.CPU > MaxCPU || t.Zone == "" {
			return nil, fmt.Errorf("CPU %d (core %d, zone %q): is listed twice, has no zone, or is not between 0 and %d", t.CPU, t.Core, t.Zone, MaxCPU)
		}

		if z, ok := zoneOfCore[t.Core]; ok && z != t.Zone {
			return nil, fmt.Errorf("core %d is in the zones %q and %q", t.Core, z, t.Zone)
		}

		zoneOfCore[t.Core] = t.Zone
		l.threads[t.CPU] = t
		cpusByZone[t.Zone] = append(cpusByZone[t.Zone], t.CPU)
		cpusByCore[t.Core] = append(cpusByCore[t.Core], t.CPU)
		all = append(all, t.CPU)
	}

	for name, cpus := range cpusByZone {
		l.zones[name] = NewCPUSet(cpus...)
	}

	for id, cpus := range cpusByCore {
		l.cores[id] = NewCPUSet(cpus...)
	}

	l.all = NewCPUSet(all...)
	return l, nil
}

// All returns the CPUs of the machine.
func (l *Layout) All() CPUSet { return l.all }

// CountByZone returns the number of CPUs in each zone, without empty zones.
func (l *Layout) CountByZone(cpus CPUSet) map[string]int {
	counts := map[string]int{}
	for zone, all := range l.zones {
		if n := all.Intersection(cpus).Len(); n > 0 {
			counts[zone] = n
		}
	}

	return counts
}
