// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topologyconv converts NodeResourceTopologies, resource quantities and the annotation topology.crane.io/topology-result to
// values of pkg/numa and back, for the scheduler's plugin and the agent. Anyone may write an annotation, so all input is validated.
package topologyconv

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
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

		// A zone without resources has distances only.
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

// ParseAmounts converts a resource list, CPU to thousandths of a core, others to their own unit (rounded up).
func ParseAmounts(list corev1.ResourceList) (numa.Resources, error) {
	out := make(numa.Resources, len(list))
	for name, q := range list {
		a, err := ParseAmount(name, q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		out[units.Resource(name)] = a
	}

	return out, nil
}

// ParseAmount converts a quantity. It rejects negative ones and those above numa.MaxAmount. It checks the exponent first, because
// converting 1e999999999 would compute a number of a billion digits.
func ParseAmount(name corev1.ResourceName, q resource.Quantity) (numa.Amount, error) {
	if _, plain := q.AsInt64(); !plain {
		q = q.DeepCopy() // AsDec changes its receiver.
		if scale := q.AsDec().Scale(); scale < -18 || scale > 18 {
			return 0, fmt.Errorf("the quantity is of the order of 1e%d", -scale)
		}
	}

	v := q.Value()
	if v < 0 || v > int64(numa.MaxAmount)/int64(numa.Core) && name == corev1.ResourceCPU || v > int64(numa.MaxAmount) {
		return 0, fmt.Errorf("%s is out of range", q.String())
	}

	if name == corev1.ResourceCPU {
		v = q.MilliValue()
	}

	return numa.Amount(v), nil
}

// NewQuantity converts an amount to a quantity in the usual format of the resource.
func NewQuantity(name units.Resource, a numa.Amount) resource.Quantity {
	switch {
	case name == units.CPU:
		return *resource.NewMilliQuantity(int64(a), resource.DecimalSI)
	case name == units.Resource(corev1.ResourceMemory), name == units.Resource(corev1.ResourceEphemeralStorage),
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(int64(a), resource.BinarySI)
	}

	return *resource.NewQuantity(int64(a), resource.DecimalSI)
}

// maxResultBytes limits the length of an annotation: 256 zones take less than 32 KiB.
const maxResultBytes = 64 << 10

// EncodeResult encodes p in gocrane's format: a JSON list of zones with name, type Node and resources.capacity.
func EncodeResult(p numa.Placement) (string, error) {
	zones := make([]topology.Zone, len(p))
	for i, s := range p {
		capacity := make(corev1.ResourceList, len(s.Resources))
		for _, name := range slices.Sorted(maps.Keys(s.Resources)) {
			capacity[corev1.ResourceName(name)] = NewQuantity(name, s.Resources[name])
		}

		zones[i] = topology.Zone{
			Name: s.Zone, Type: topology.ZoneTypeNode,
			Resources: &topology.ResourceInfo{Capacity: capacity},
		}
	}

	out, err := json.Marshal(zones)
	if err != nil {
		return "", fmt.Errorf("encode zones: %w", err)
	}

	return string(out), nil
}

// DecodeResult decodes the annotation of this or of gocrane's scheduler. It validates everything, since anyone may write it.
func DecodeResult(s string) (numa.Placement, error) {
	if len(s) > maxResultBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are allowed", len(s), maxResultBytes)
	}

	var zones []topology.Zone
	if err := json.Unmarshal([]byte(s), &zones); err != nil {
		return nil, fmt.Errorf("decoding zones: %w", err)
	}

	p := make(numa.Placement, 0, len(zones))
	for _, z := range zones {
		// A zone without a type counts as a NUMA node.
		if z.Type != topology.ZoneTypeNode && z.Type != "" {
			continue
		}

		share := numa.Share{Zone: z.Name}
		if z.Resources != nil {
			amounts, err := ParseAmounts(z.Resources.Capacity)
			if err != nil {
				return nil, fmt.Errorf("zone %q: %w", z.Name, err)
			}

			share.Resources = amounts
		}

		p = append(p, share)
	}

	if err := p.Validate(); err != nil {
		return nil, err
	}

	return p, nil
}
