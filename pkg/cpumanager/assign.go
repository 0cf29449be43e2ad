// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"fmt"
	"maps"
	"slices"

	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/series"
)

// Machine is which CPUs there are. Reserved ones are given to no container alone.
type Machine struct {
	Layout   *numa.Layout
	Reserved numa.CPUSet
	// Memory is what containers can have of each zone; a zone without any is not named.
	Memory map[string]series.Bytes
	// MemoryBoundByKubelet tells that somebody else binds containers to zones of memory: then nobody is bound here.
	MemoryBoundByKubelet bool
}

// Pod is a pod whose containers are to have CPUs.
type Pod struct {
	UID    string
	Policy numa.Policy
	// Zones is how many CPUs of each zone the scheduler gave the pod.
	Zones      map[string]int
	Containers []Container
}

// Container is a container that asks for CPUs of its own.
type Container struct {
	Name string
	// CPUs is how many, more than 0.
	CPUs int
	// Memory is its limit; 0 for none.
	Memory series.Bytes
}

// ID names a container of a pod.
type ID struct{ Pod, Container string }

// String is the form for people.
func (id ID) String() string { return id.Pod + "/" + id.Container }

// Assignment is what a container has.
type Assignment struct {
	ID
	// Policy is empty where it is not known, as in what gocrane's agent wrote: then it is the one that the pod has.
	Policy numa.Policy
	// CPUs are those of Exclusive and Immovable, Zones how many of each zone were asked for.
	CPUs  numa.CPUSet
	Zones map[string]int
}

// Refusal is a container that does not get what it asks for.
type Refusal struct {
	ID
	// KeepsCPUs tells that it keeps what it had; else it shares with the others.
	KeepsCPUs bool
	Reason    string
}

// Plan is who runs where.
type Plan struct {
	// Assignments are in the order of the pods.
	Assignments []Assignment
	Refused     []Refusal
	// Shared are the CPUs that nobody has alone, reserved ones included.
	Shared numa.CPUSet

	cpus map[ID]numa.CPUSet
}

// CPUs are those on which a container runs: its own, those of its zones, or the shared ones.
func (p *Plan) CPUs(id ID) numa.CPUSet {
	if cpus, ok := p.cpus[id]; ok {
		return cpus
	}
	return p.Shared
}

// Exclusive are the CPUs that some container has alone.
func (p *Plan) Exclusive() (cpus numa.CPUSet) {
	for _, h := range p.Assignments {
		if h.Policy == numa.PolicyExclusive {
			cpus = cpus.Union(h.CPUs)
		}
	}
	return cpus
}

// Assign decides anew, given what containers have. Holdings of containers that are not among the pods end. The others keep their CPUs, but
// for those that are reserved by now, where there is another for it. A container that asks for more than before (a resize in place) gets
// more of the pod's zones; one that was never given as many by the scheduler does not. Pods come first that come first in pods.
func Assign(m Machine, before []Assignment, pods []Pod) Plan {
	a := assigner{machine: m, allocator: numa.NewCPUAllocator(m.Layout, m.Reserved), previous: make(map[ID]Assignment, len(before))}
	for _, h := range before {
		a.previous[h.ID] = h
	}
	a.restorePrevious(pods)
	plan := Plan{cpus: map[ID]numa.CPUSet{}}
	counts := map[ID]map[string]int{}
	for i := range pods {
		plan.Refused = append(plan.Refused, a.assignPod(&pods[i], counts)...)
	}
	for i := range pods {
		for _, c := range pods[i].Containers {
			id := ID{pods[i].UID, c.Name}
			policy, held := a.allocator.Policy(id.String())
			if !held {
				continue
			}
			h := Assignment{ID: id, Policy: policy, Zones: counts[id]}
			plan.cpus[id] = a.allocator.CPUs(id.String())
			if policy != numa.PolicyNUMA {
				h.CPUs = plan.cpus[id]
			}
			plan.Assignments = append(plan.Assignments, h)
		}
	}
	plan.Shared = a.allocator.Shared()
	return plan
}

type assigner struct {
	machine   Machine
	allocator *numa.CPUAllocator
	previous  map[ID]Assignment
}

// restorePrevious gives containers what they had before anybody gets anything new, first those with CPUs of their own.
func (a *assigner) restorePrevious(pods []Pod) {
	for _, fixed := range []bool{true, false} {
		for i := range pods {
			for _, c := range pods[i].Containers {
				id := ID{pods[i].UID, c.Name}
				h, had := a.previous[id]
				if !had {
					continue
				}
				if h.Policy == "" {
					h.Policy = pods[i].Policy
				}
				cpus := h.CPUs.Intersection(a.machine.Layout.All()) // others are offline
				// Where that cannot be, it asks like a new one, which says why there is no room.
				switch {
				case fixed && h.Policy != numa.PolicyNUMA && cpus.Len() > 0:
					_ = a.allocator.Restore(id.String(), h.Policy, cpus)
				case !fixed && h.Policy == numa.PolicyNUMA:
					_ = a.allocator.Allocate(id.String(), h.Policy, h.Zones, numa.CPUSet{})
				}
			}
		}
	}
}

// assignPod gives a pod's containers what they ask for and notes the numbers by zone.
func (a *assigner) assignPod(p *Pod, counts map[ID]map[string]int) (refused []Refusal) {
	if p.Policy == numa.PolicyNone {
		for _, c := range p.Containers {
			a.allocator.Release(ID{p.UID, c.Name}.String())
		}
		return nil
	}
	wants, had := make([]int, len(p.Containers)), make([]map[string]int, len(p.Containers))
	for i, c := range p.Containers {
		id := ID{p.UID, c.Name}
		wants[i], had[i] = c.CPUs, a.countByZone(id)
		counts[id] = had[i]
	}
	zones := a.growZones(p, wants, had)
	shares, err := Divide(zones, wants, had)
	// Those that ask for less go first: what they give back may be what another asks for.
	for _, i := range a.orderShrinkingFirst(wants, had) {
		id := ID{p.UID, p.Containers[i].Name}
		failed := err
		if failed == nil {
			failed = a.allocator.Allocate(id.String(), p.Policy, shares[i], a.previous[id].CPUs)
		}
		if failed == nil {
			counts[id] = shares[i]
			continue
		}
		_, keeps := a.allocator.Policy(id.String())
		refused = append(refused, Refusal{ID: id, KeepsCPUs: keeps, Reason: failed.Error()})
	}
	return refused
}

func (a *assigner) orderShrinkingFirst(wants []int, had []map[string]int) []int {
	var giving, others []int
	for i := range wants {
		if sumCounts(had[i]) > wants[i] {
			giving = append(giving, i)
		} else {
			others = append(others, i)
		}
	}
	return append(giving, others...)
}

// countByZone is how many CPUs of each zone a container holds now; nil for none.
func (a *assigner) countByZone(id ID) map[string]int {
	policy, held := a.allocator.Policy(id.String())
	switch {
	case !held:
		return nil
	case policy == numa.PolicyNUMA:
		return a.previous[id].Zones
	}
	return a.machine.Layout.CountByZone(a.allocator.CPUs(id.String()))
}

// growZones is a pod's zones, with more CPUs where its containers, all of which hold some, ask for more in sum than the scheduler gave: those
// that they hold beyond it already, then of those zones the one with the most to spare.
func (a *assigner) growZones(p *Pod, wants []int, had []map[string]int) map[string]int {
	missing := -sumCounts(p.Zones)
	held := map[string]int{}
	for i, n := range wants {
		missing += n
		if sumCounts(had[i]) == 0 {
			return p.Zones
		}
		for zone, n := range had[i] {
			held[zone] += n
		}
	}
	if missing <= 0 {
		return p.Zones
	}
	zones := maps.Clone(p.Zones)
	names := slices.Sorted(maps.Keys(zones))
	for _, zone := range names {
		more := min(missing, max(0, held[zone]-zones[zone]))
		zones[zone] += more
		missing -= more
	}
	for missing > 0 {
		best, most := "", 0
		for _, zone := range names {
			if spare := a.allocator.Available(zone) - max(0, zones[zone]-held[zone]); spare > most {
				best, most = zone, spare
			}
		}
		if best == "" {
			break // Divide says how many are missing.
		}
		more := min(missing, most)
		zones[best] += more
		missing -= more
	}
	return zones
}

func sumCounts(zones map[string]int) (n int) {
	for _, c := range zones {
		n += c
	}
	return n
}

// Validate reports holdings that cannot be: without a name, twice the same container, a policy that is none, a number below 0.
func Validate(holdings []Assignment) error {
	seen := make(map[ID]bool, len(holdings))
	for i, h := range holdings {
		switch {
		case h.Pod == "" || h.Container == "":
			return fmt.Errorf("holding %d names no container", i)
		case seen[h.ID]:
			return fmt.Errorf("container %s stands twice", h.ID)
		case h.Policy != "" && h.Policy != numa.PolicyExclusive && h.Policy != numa.PolicyImmovable && h.Policy != numa.PolicyNUMA:
			return fmt.Errorf("container %s has policy %q", h.ID, h.Policy)
		}
		seen[h.ID] = true
		for zone, n := range h.Zones {
			if n < 0 || n > numa.MaxCPU+1 {
				return fmt.Errorf("container %s has %d CPUs of zone %q", h.ID, n, zone)
			}
		}
	}
	return nil
}
