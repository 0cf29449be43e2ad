// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"cmp"
	"fmt"
	"maps"
	"testing"

	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"

	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// machine is a machine as the kubelet describes it. Cores have unique numbers.
type machine struct {
	name string
	cpus map[int]topology.CPUInfo
}

// newMachine returns a machine of equal parts, each within the next one: threads, cores, caches, zones, sockets. The second threads are
// numbered after all first ones, as on x86.
func newMachine(name string, sockets, zonesPerSocket, cachesPerZone, coresPerCache, threads int) machine {
	m := machine{name: name, cpus: map[int]topology.CPUInfo{}}
	cores := sockets * zonesPerSocket * cachesPerZone * coresPerCache
	for cpu := range cores * threads {
		core := cpu % cores
		cache := core / coresPerCache
		zone := cache / cachesPerZone
		m.cpus[cpu] = topology.CPUInfo{
			CoreID:        core,
			UncoreCacheID: cache,
			NUMANodeID:    zone,
			SocketID:      zone / zonesPerSocket,
		}
	}

	return m
}

func (m machine) count(part func(topology.CPUInfo) int) int {
	seen := map[int]bool{}
	for _, info := range m.cpus {
		seen[part(info)] = true
	}

	return len(seen)
}

// kubelets returns the machine as the kubelet's CPU manager reads it.
func (m machine) kubelets() *topology.CPUTopology {
	return &topology.CPUTopology{
		NumCPUs:        len(m.cpus),
		NumCores:       m.count(func(i topology.CPUInfo) int { return i.CoreID }),
		NumUncoreCache: m.count(func(i topology.CPUInfo) int { return i.UncoreCacheID }),
		NumSockets:     m.count(func(i topology.CPUInfo) int { return i.SocketID }),
		NumNUMANodes:   m.count(func(i topology.CPUInfo) int { return i.NUMANodeID }),
		CPUDetails:     m.cpus,
	}
}

func (m machine) layout(t *testing.T) *numa.Layout {
	t.Helper()

	var threads []numa.Thread
	for cpu, info := range m.cpus {
		threads = append(threads, numa.Thread{CPU: cpu, Core: info.CoreID, Zone: zoneName(info.NUMANodeID), Cache: 1 + info.UncoreCacheID})
	}

	layout, err := numa.NewLayout(threads)
	if err != nil {
		t.Fatal(err)
	}

	return layout
}

func zoneName(id int) string { return fmt.Sprint("node", id) }

// chooseZones returns the zones that the scheduler chooses for a container of n CPUs by the number of free CPUs of each zone.
func (m machine) chooseZones(t *testing.T, free numa.CPUSet, n int) (map[string]int, bool) {
	t.Helper()

	counts := m.layout(t).CountByZone(free)
	sockets := map[string]int{}
	for _, info := range m.cpus {
		sockets[zoneName(info.NUMANodeID)] = info.SocketID
	}

	// Zones of a socket are near to one another, as firmware says.
	var zones []numa.Zone
	for zone, socket := range sockets {
		z := numa.Zone{Name: zone, Usable: numa.Resources{units.CPU: numa.Core * numa.Amount(counts[zone])}, Distances: map[string]int{}}
		for other, otherSocket := range sockets {
			z.Distances[other] = map[bool]int{true: 12, false: 21}[socket == otherSocket]
		}

		z.Distances[zone] = 10
		zones = append(zones, z)
	}

	var node numa.Node
	if err := node.SetZones(zones); err != nil {
		t.Fatal(err)
	}

	placement, ok := node.Assign(numa.Request{Resources: numa.Resources{units.CPU: numa.Core * numa.Amount(n)}})
	shares := map[string]int{}
	for _, share := range placement {
		shares[share.Zone] = int(share.Resources[units.CPU] / numa.Core)
	}

	return shares, ok
}

// assign returns the CPUs that the agent chooses for a container of n CPUs among free ones in the zones of its pod.
func (m machine) assign(t *testing.T, free numa.CPUSet, shares map[string]int, n int) numa.CPUSet {
	t.Helper()

	layout := m.layout(t)
	pod := cpumanager.Pod{UID: "pod", Policy: numa.PolicyExclusive, Zones: maps.Clone(shares), Containers: []cpumanager.Container{{Name: "main", CPUs: n}}}
	plan := cpumanager.Assign(cpumanager.Machine{Layout: layout, Reserved: layout.All().Difference(free)}, nil, []cpumanager.Pod{pod})
	cpus := plan.Exclusive()
	if len(plan.Refused) > 0 || cpus.Len() != n || cpus.Difference(free).Len() > 0 {
		t.Fatalf("%s: assigned CPUs %s, refused %+v, want %d of %s", m.name, cpus, plan.Refused, n, free)
	}

	return cpus
}

// quality is how well a container's CPUs are chosen: less is better.
type quality struct {
	Zones, Sockets int
	// PartialCores are cores of which the container has some threads and not all.
	PartialCores int
	Caches       int
}

func (m machine) judge(cpus numa.CPUSet) quality {
	zones := map[int]bool{}
	sockets := map[int]bool{}
	caches := map[int]bool{}
	threads := map[int]int{}
	for cpu := range cpus.All() {
		info := m.cpus[cpu]
		zones[info.NUMANodeID] = true
		sockets[info.SocketID] = true
		caches[info.UncoreCacheID] = true
		threads[info.CoreID]++
	}

	for _, info := range m.cpus {
		if _, used := threads[info.CoreID]; used {
			threads[info.CoreID]--
		}
	}

	partial := 0
	for cpu := range cpus.All() {
		core := m.cpus[cpu].CoreID
		if threads[core] < 0 {
			partial++
			threads[core] = 0 // Each core counts once.
		}
	}

	return quality{
		Zones:        len(zones),
		Sockets:      len(sockets),
		PartialCores: partial,
		Caches:       len(caches),
	}
}

// compare orders qualities: fewer zones come before fewer sockets, cores in part and caches, in this order.
func compare(a, b quality) int {
	return cmp.Or(cmp.Compare(a.Zones, b.Zones), cmp.Compare(a.Sockets, b.Sockets), cmp.Compare(a.PartialCores, b.PartialCores), cmp.Compare(a.Caches, b.Caches))
}

func (q quality) withoutCaches() quality {
	q.Caches = 0
	return q
}
