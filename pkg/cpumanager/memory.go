// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"fmt"
	"maps"
	"slices"

	"crane.io/crane/pkg/units"
)

// otherMemoryMargin is the share of OtherMemory that must be free in addition before a container is bound, so that small changes of it do
// not bind and release a container in turn.
const otherMemoryMargin = 8

// BindMemory returns the memory zones of containers: those of their CPUs. A container bound to zones is OOM-killed when these are full,
// even if others have free memory. Therefore only containers with a memory limit are bound, and only while the limits of all bound
// containers fit into the zone beside everything else in use there; a limit is divided among zones in proportion to the CPUs. bound holds
// the containers that are bound now, which may use the last of a zone. why holds the reason for assigned containers that are not bound.
func BindMemory(m Machine, plan *Plan, pods []Pod, bound map[ID][]string) (zones map[ID][]string, why map[ID]string) {
	zones = map[ID][]string{}
	why = map[ID]string{}

	limits := map[ID]units.Bytes{}
	for i := range pods {
		for _, c := range pods[i].Containers {
			limits[ID{pods[i].UID, c.Name}] = c.Memory
		}
	}

	free := maps.Clone(m.Memory)
	for zone, used := range m.OtherMemory {
		free[zone] -= used
	}

	for _, assignment := range plan.Assignments {
		reason := "the kubelet binds containers to memory zones itself"
		if !m.MemoryBoundByKubelet {
			// A container that is bound already stays bound without a margin.
			var margins map[string]units.Bytes
			if bound[assignment.ID] == nil {
				margins = m.OtherMemory
			}

			reason = reserveMemory(free, margins, assignment.Zones, limits[assignment.ID])
		}

		if reason != "" {
			why[assignment.ID] = reason
			continue
		}

		for _, zone := range slices.Sorted(maps.Keys(assignment.Zones)) {
			if assignment.Zones[zone] > 0 {
				zones[assignment.ID] = append(zones[assignment.ID], zone)
			}
		}
	}

	return zones, why
}

// reserveMemory subtracts a limit from the free memory of the zones, or returns why it cannot. A part of otherMemory must stay free.
func reserveMemory(free, otherMemory map[string]units.Bytes, zones map[string]int, limit units.Bytes) string {
	cpus := sumCounts(zones)
	if cpus == 0 {
		return "it has no CPUs in any zone"
	}

	if limit <= 0 {
		return "it has no limit on memory"
	}

	needs := map[string]units.Bytes{}
	for zone, n := range zones {
		switch {
		case n == cpus:
			needs[zone] = limit
		case n > 0:
			needs[zone] = limit/units.Bytes(cpus)*units.Bytes(n) + units.Bytes(n) // rounded up
		}
	}

	for _, zone := range slices.Sorted(maps.Keys(needs)) {
		if needs[zone]+otherMemory[zone]/otherMemoryMargin > free[zone] {
			return fmt.Sprintf("zone %s has %d MiB left, it may use %d MiB there", zone, max(free[zone], 0)>>20, needs[zone]>>20)
		}
	}

	for zone, n := range needs {
		free[zone] -= n
	}

	return ""
}
