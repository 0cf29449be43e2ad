// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
)

// ValidateNodeResourceTopology validates the zones of a node, for clients other than the agent.
func ValidateNodeResourceTopology(n *topologyv1alpha1.NodeResourceTopology, _ Facts) Result {
	var v Result
	zones := map[string]*topologyv1alpha1.Zone{}
	for i := range n.Zones {
		zones[n.Zones[i].Name] = &n.Zones[i]
	}

	// Parents and costs name zones of the same node.
	v.addErrors(rejectNegative(n.Reserved, field.NewPath("reserved"))...)

	for i := range n.Zones {
		z := &n.Zones[i]
		path := field.NewPath("zones").Index(i)
		if z.Parent != "" && zones[z.Parent] == nil {
			v.addErrors(field.Invalid(path.Child("parent"), z.Parent, "is not the name of a zone of this node"))
		} else if isCircular(z, zones) {
			v.addErrors(field.Invalid(path.Child("parent"), z.Parent, "the zone would be part of itself"))
		}

		for j, c := range z.Costs {
			if zones[c.Name] == nil {
				v.addErrors(field.Invalid(path.Child("costs").Index(j).Child("name"), c.Name, "is not the name of a zone of this node"))
			}
		}

		v.merge(validateZoneResources(z.Resources, path.Child("resources")))
	}

	for _, i := range duplicates(n.Zones, func(z topologyv1alpha1.Zone) string { return z.Name }) {
		v.addErrors(field.Duplicate(field.NewPath("zones").Index(i).Child("name"), n.Zones[i].Name))
	}

	return v
}

// isCircular reports whether a zone is among its own ancestors.
func isCircular(z *topologyv1alpha1.Zone, zones map[string]*topologyv1alpha1.Zone) bool {
	for zone, steps := z, 0; zone != nil && zone.Parent != ""; zone, steps = zones[zone.Parent], steps+1 {
		if zone.Parent == z.Name || steps > len(zones) {
			return true
		}
	}

	return false
}

func validateZoneResources(r *topologyv1alpha1.ResourceInfo, path *field.Path) Result {
	var v Result
	if r == nil {
		return v
	}

	v.addErrors(rejectNegative(r.Capacity, path.Child("capacity"))...)
	v.addErrors(rejectNegative(r.Allocatable, path.Child("allocatable"))...)

	for _, name := range slices.Sorted(maps.Keys(r.Allocatable)) {
		capacity, ok := r.Capacity[name]
		if allocatable := r.Allocatable[name]; ok && allocatable.Cmp(capacity) > 0 {
			v.addErrors(field.Invalid(path.Child("allocatable").Key(string(name)), allocatable.String(), "must be at most the capacity, "+capacity.String()))
		}
	}

	if capacity, ok := r.Capacity[corev1.ResourceCPU]; ok && capacity.Cmp(*resource.NewQuantity(int64(r.ReservedCPUNums), resource.DecimalSI)) < 0 {
		v.addErrors(field.Invalid(path.Child("reservedCPUNums"), r.ReservedCPUNums, "must be at most the capacity, "+capacity.String()))
	}

	return v
}

func rejectNegative(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Key(string(name)), q.String(), "must be 0 or more"))
		}
	}

	return errs
}
