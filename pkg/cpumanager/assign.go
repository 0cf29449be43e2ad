// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"fmt"
	"maps"
	"slices"

	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// Machine holds the CPUs of a machine. Reserved ones are not assigned to single containers.
type Machine struct {
	Layout   *numa.Layout
	Reserved numa.CPUSet
	// Memory is the memory available to containers by zone, without empty zones.
	Memory map[string]units.Bytes
	// Isolated are CPUs among which the kernel balances no load (isolcpus): containers may have them exclusively, and none shares them.
	Isolated numa.CPUSet
	// OtherMemory is the part of Memory in use by zone by what BindMemory does not bind.
	OtherMemory map[string]units.Bytes
	// MemoryBoundByKubelet means that the kubelet binds containers to memory zones, so that BindMemory binds none.
	MemoryBoundByKubelet bool
}

// Pod is a pod whose containers request exclusive CPUs.
type Pod struct {
	UID    string
	Policy numa.Policy
	// Zones is the number of CPUs by zone that the scheduler assigned to the pod.
	Zones      map[string]int
	Containers []Container
}

// Container is a container that requests CPUs of its own.
type Container struct {
	Name string
	// CPUs is the number of requested CPUs, above 0.
	CPUs int
	// Memory is the memory limit; 0 for none.
	Memory units.Bytes
}

// ID identifies a container of a pod.
type ID struct{ Pod, Container string }

// String returns the form pod/container.
func (id ID) String() string { return id.Pod + "/" + id.Container }

// Assignment is the assignment of CPUs to a container.
type Assignment struct {
	ID
	// Policy is empty if unknown, as in gocrane's state file; the policy of the pod applies then.
	Policy numa.Policy
	// CPUs holds the CPUs of exclusive and immovable containers, Zones the requested number by zone.
	CPUs  numa.CPUSet
	Zones map[string]int
}

// Refusal is a container whose request was refused.
type Refusal struct {
	ID
	// KeepsCPUs means that it keeps the previous assignment; otherwise it shares.
	KeepsCPUs bool
	Reason    string
}

// Plan assigns CPUs to all containers.
type Plan struct {
	// Assignments are in the order of the pods.
	Assignments []Assignment
	Refused     []Refusal
	// Shared holds all CPUs that are not exclusive, including reserved ones.
	Shared numa.CPUSet

	cpus map[ID]numa.CPUSet
}

// CPUs returns the CPUs of a container: its own, those of its zones, or the shared ones.
func (p *Plan) CPUs(id ID) numa.CPUSet {
	if cpus, ok := p.cpus[id]; ok {
		return cpus
	}

	return p.Shared
}

// Exclusive returns the CPUs of exclusive containers.
func (p *Plan) Exclusive() (cpus numa.CPUSet) {
	for _, assignment := range p.Assignments {
		if assignment.Policy == numa.PolicyExclusive {
			cpus = cpus.Union(assignment.CPUs)
		}
	}

	return cpus
}

// Assign computes a new plan. Previous assignments of containers that are not in pods end. The others keep their CPUs, except for CPUs
// that are now reserved and can be replaced. A container that requests more than before (a resize in place) gets more in the zones of its
// pod; a new container does not get more than the scheduler assigned. Earlier pods take precedence.
func Assign(m Machine, before []Assignment, pods []Pod) Plan {
	a := assigner{machine: m, allocator: numa.NewCPUAllocator(m.Layout, m.Reserved), previous: make(map[ID]Assignment, len(before))}
	for _, assignment := range before {
		a.previous[assignment.ID] = assignment
	}

	// Previous assignments come first, so that no new container gets their CPUs.
	a.restorePrevious(pods)

	plan := Plan{cpus: map[ID]numa.CPUSet{}}
	counts := map[ID]map[string]int{}
	for i := range pods {
		plan.Refused = append(plan.Refused, a.assignPod(&pods[i], counts)...)
	}

	// The allocator now has both the new assignments and those that were kept.
	for i := range pods {
		for _, c := range pods[i].Containers {
			id := ID{pods[i].UID, c.Name}
			policy, ok := a.allocator.Policy(id.String())
			if !ok {
				continue
			}

			assignment := Assignment{ID: id, Policy: policy, Zones: counts[id]}
			plan.cpus[id] = a.allocator.CPUs(id.String())
			if policy == numa.PolicyNUMA {
				plan.cpus[id] = m.withoutIsolated(plan.cpus[id])
			}

			if policy != numa.PolicyNUMA {
				assignment.CPUs = plan.cpus[id]
			}

			plan.Assignments = append(plan.Assignments, assignment)
		}
	}

	plan.Shared = m.withoutIsolated(a.allocator.Shared())
	return plan
}

// withoutIsolated returns shared CPUs without isolated ones, or all of them if there are no others: threads that share isolated CPUs all stay
// on one of them.
func (m *Machine) withoutIsolated(shared numa.CPUSet) numa.CPUSet {
	if rest := shared.Difference(m.Isolated); rest.Len() > 0 {
		return rest
	}

	return shared
}

type assigner struct {
	machine   Machine
	allocator *numa.CPUAllocator
	previous  map[ID]Assignment
}

// restorePrevious restores previous assignments before any new one, those with own CPUs first.
func (a *assigner) restorePrevious(pods []Pod) {
	for _, fixed := range []bool{true, false} {
		for i := range pods {
			for _, c := range pods[i].Containers {
				id := ID{pods[i].UID, c.Name}
				assignment, ok := a.previous[id]
				if !ok {
					continue
				}

				if assignment.Policy == "" {
					assignment.Policy = pods[i].Policy
				}

				cpus := assignment.CPUs.Intersection(a.machine.Layout.All()) // The others are offline.
				// Assignments that cannot be restored are requested again, which reports the reason.
				switch {
				case fixed && assignment.Policy != numa.PolicyNUMA && cpus.Len() > 0:
					_ = a.allocator.Restore(id.String(), assignment.Policy, cpus)
				case !fixed && assignment.Policy == numa.PolicyNUMA:
					_ = a.allocator.Allocate(id.String(), assignment.Policy, assignment.Zones, numa.CPUSet{})
				}
			}
		}
	}
}

// assignPod assigns CPUs to a pod's containers and records their numbers by zone.
func (a *assigner) assignPod(p *Pod, counts map[ID]map[string]int) (refused []Refusal) {
	if p.Policy == numa.PolicyNone {
		for _, c := range p.Containers {
			a.allocator.Release(ID{p.UID, c.Name}.String())
		}

		return nil
	}

	requested := make([]int, len(p.Containers))
	current := make([]map[string]int, len(p.Containers))
	for i, c := range p.Containers {
		id := ID{p.UID, c.Name}
		requested[i] = c.CPUs
		current[i] = a.countByZone(id)
		counts[id] = current[i]
	}

	zones := a.growZones(p, requested, current)
	shares, err := Divide(zones, requested, current)
	// Containers that shrink come first, because others may request what they release.
	for _, i := range a.orderShrinkingFirst(requested, current) {
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

func (a *assigner) orderShrinkingFirst(requested []int, current []map[string]int) []int {
	var shrinking, others []int
	for i := range requested {
		if sumCounts(current[i]) > requested[i] {
			shrinking = append(shrinking, i)
		} else {
			others = append(others, i)
		}
	}

	return append(shrinking, others...)
}

// countByZone returns the number of CPUs by zone that a container holds; nil for none.
func (a *assigner) countByZone(id ID) map[string]int {
	policy, ok := a.allocator.Policy(id.String())
	switch {
	case !ok:
		return nil
	case policy == numa.PolicyNUMA:
		return a.previous[id].Zones
	}

	return a.machine.Layout.CountByZone(a.allocator.CPUs(id.String()))
}

// growZones returns the CPUs by zone of a pod. If its containers all hold CPUs and request more in sum than the scheduler assigned, it
// adds those that they already hold beyond it, then those of the zone with the most available.
func (a *assigner) growZones(p *Pod, requested []int, current []map[string]int) map[string]int {
	missing := -sumCounts(p.Zones)
	currentByZone := map[string]int{}
	for i, n := range requested {
		missing += n
		if sumCounts(current[i]) == 0 {
			return p.Zones
		}

		for zone, n := range current[i] {
			currentByZone[zone] += n
		}
	}

	if missing <= 0 {
		return p.Zones
	}

	zones := maps.Clone(p.Zones)
	names := slices.Sorted(maps.Keys(zones))
	for _, zone := range names {
		more := min(missing, max(0, currentByZone[zone]-zones[zone]))
		zones[zone] += more
		missing -= more
	}

	for missing > 0 {
		best, bestSpare := "", 0
		for _, zone := range names {
			if spare := a.allocator.Available(zone) - max(0, zones[zone]-currentByZone[zone]); spare > bestSpare {
				best = zone
				bestSpare = spare
			}
		}

		if best == "" {
			break // Divide reports the shortage.
		}

		more := min(missing, bestSpare)
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

// Validate returns an error for assignments without a name, duplicate containers, unknown policies and numbers out of range.
func Validate(assignments []Assignment) error {
	seen := make(map[ID]bool, len(assignments))
	for i, assignment := range assignments {
		switch {
		case assignment.Pod == "" || assignment.Container == "":
			return fmt.Errorf("assignment %d names no container", i)
		case seen[assignment.ID]:
			return fmt.Errorf("container %s is listed twice", assignment.ID)
		case assignment.Policy != "" && assignment.Policy != numa.PolicyExclusive && assignment.Policy != numa.PolicyImmovable && assignment.Policy != numa.PolicyNUMA:
			return fmt.Errorf("container %s has policy %q", assignment.ID, assignment.Policy)
		}

		seen[assignment.ID] = true
		for zone, n := range assignment.Zones {
			if n < 0 || n > numa.MaxCPU+1 {
				return fmt.Errorf("container %s has %d CPUs of zone %q", assignment.ID, n, zone)
			}
		}
	}

	return nil
}
