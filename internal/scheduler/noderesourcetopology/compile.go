// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"fmt"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/scheduler/noderesourcetopology/wire"
	"crane.io/crane/pkg/numa"
)

// compiled is what scheduling needs of a NodeResourceTopology, made once for each change of it.
type compiled struct {
	// managed says that Crane's agent assigns CPUs on the node. Where the kubelet does, zones are its business.
	managed bool
	// singleZone is the node's policy for pods that say nothing themselves.
	singleZone bool
	zones      []numa.Zone
	empty      *numa.Node // with these zones, where nobody holds anything
}

// compile reads t. Zones other than NUMA nodes hold the same CPUs once more and are left out. The error names what cannot
// be; the node then counts as one whose zones are not known.
func compile(t *topology.NodeResourceTopology) (*compiled, error) {
	c := &compiled{
		managed:    t.CraneManagerPolicy.CPUManagerPolicy == topology.CPUManagerPolicyStatic,
		singleZone: t.CraneManagerPolicy.TopologyManagerPolicy != topology.TopologyManagerPolicyNone,
	}
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
			capacity, err := wire.Amounts(z.Resources.Capacity)
			if err != nil {
				return nil, fmt.Errorf("zone %q: capacity: %w", z.Name, err)
			}
			allocatable, err := wire.Amounts(z.Resources.Allocatable)
			if err != nil {
				return nil, fmt.Errorf("zone %q: allocatable: %w", z.Name, err)
			}
			zone.Usable = numa.Usable(capacity, allocatable, int(z.Resources.ReservedCPUNums))
		}
		c.zones = append(c.zones, zone)
	}
	c.empty = &numa.Node{}
	if err := c.empty.SetZones(c.zones); err != nil {
		return nil, err
	}
	return c, nil
}
