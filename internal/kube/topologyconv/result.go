// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topologyconv

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/pkg/numa"
)

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
		return nil, fmt.Errorf("decode zones: %w", err)
	}
	p := make(numa.Placement, 0, len(zones))
	for _, z := range zones {
		if z.Type != topology.ZoneTypeNode && z.Type != "" {
			continue
		}
		share := numa.Share{Zone: z.Name}
		if z.Resources != nil {
			var err error
			if share.Resources, err = ParseAmounts(z.Resources.Capacity); err != nil {
				return nil, fmt.Errorf("zone %q: %w", z.Name, err)
			}
		}
		p = append(p, share)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}
