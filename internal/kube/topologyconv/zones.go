// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topologyconv

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/pkg/numa"
)

// ReadZones converts the NUMA nodes of a NodeResourceTopology. Zones of other types contain the same CPUs again and are skipped. The
// error names a zone with an invalid amount; numa.Node.SetZones checks the zones as a whole.
func ReadZones(t *topology.NodeResourceTopology) ([]numa.Zone, error) {
	var zones []numa.Zone
	for i := range t.Zones {
		z := &t.Zones[i]
		if z.Type != topology.ZoneTypeNode {
			continue
		}
		zone := numa.Zone{Name: z.Name}
		if len(z.Costs) > 0 {
			zone.Distances = make(map[string]int, len(z.Costs))
			for _, cost := range z.Costs {
				zone.Distances[cost.Name] = int(cost.Value)
			}
		}
		if z.Resources != nil {
			capacity, err := ParseAmounts(z.Resources.Capacity)
			if err != nil {
				return nil, fmt.Errorf("zone %q: capacity: %w", z.Name, err)
			}
			allocatable, err := ParseAmounts(z.Resources.Allocatable)
			if err != nil {
				return nil, fmt.Errorf("zone %q: allocatable: %w", z.Name, err)
			}
			zone.Usable = numa.Usable(capacity, allocatable, int(z.Resources.ReservedCPUNums))
		}
		zones = append(zones, zone)
	}
	return zones, nil
}

// CountWholeCPUs returns the number of CPUs that a container requests for itself: its CPU request if that is whole and equals the limit,
// otherwise 0.
func CountWholeCPUs(r *corev1.ResourceRequirements) int {
	request, ok := r.Requests[corev1.ResourceCPU]
	limit, limited := r.Limits[corev1.ResourceCPU]
	if !ok || !limited {
		return 0
	}
	a, errA := ParseAmount(corev1.ResourceCPU, request)
	b, errB := ParseAmount(corev1.ResourceCPU, limit)
	if errA != nil || errB != nil || a != b || a <= 0 || a%numa.Core != 0 {
		return 0
	}
	return int(a / numa.Core)
}
