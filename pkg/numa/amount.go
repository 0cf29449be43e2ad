// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"crane.io/crane/pkg/units"
)

// Amount is an amount of a resource: thousandths of a core for CPU, which is assigned in whole cores, otherwise the unit of the resource (bytes,
// devices).
type Amount int64

const (
	// Core is one whole CPU.
	Core Amount = 1000
	// MaxAmount is the maximum amount of one resource in one zone, 2^50 (1 PiB). Sums for MaxOwners cannot overflow.
	MaxAmount Amount = 1 << 50
)

// Resources maps resources to amounts. A missing resource is 0.
type Resources map[units.Resource]Amount

// names returns the resources, CPU first, then by name.
func (r Resources) names() []units.Resource {
	return slices.SortedFunc(maps.Keys(r), compareResources)
}

func compareResources(a, b units.Resource) int {
	switch {
	case a == b:
		return 0
	case a == units.CPU:
		return -1
	case b == units.CPU:
		return 1
	}

	return cmp.Compare(a, b)
}

// String formats r as in "cpu=1500m, memory=1024"; whole cores without unit.
func (r Resources) String() string {
	var parts []string
	for _, name := range r.names() {
		switch a := r[name]; {
		case name == units.CPU && a%Core == 0:
			parts = append(parts, fmt.Sprintf("%s=%d", name, a/Core))
		case name == units.CPU:
			parts = append(parts, fmt.Sprintf("%s=%dm", name, a))
		default:
			parts = append(parts, fmt.Sprintf("%s=%d", name, a))
		}
	}

	return strings.Join(parts, ", ")
}

func (r Resources) validate() error {
	var bad units.Resource
	found := false
	for name, a := range r {
		if (a < 0 || a > MaxAmount) && (!found || compareResources(name, bad) < 0) {
			bad = name
			found = true
		}
	}

	if !found {
		return nil
	}

	return fmt.Errorf("%s is %d, allowed are 0 to %d", bad, r[bad], MaxAmount)
}

// Usable returns what pods can use of a zone: allocatable, or capacity for resources that allocatable lacks; never more than capacity,
// nor more CPU than capacity without the reserved CPUs.
func Usable(capacity, allocatable Resources, reservedCPUs int) Resources {
	usable := maps.Clone(capacity)
	if usable == nil {
		usable = Resources{}
	}
	if total, ok := usable[units.CPU]; ok {
		usable[units.CPU] = max(0, total-Amount(min(max(0, reservedCPUs), int(MaxAmount/Core)))*Core)
	}

	for name, a := range allocatable {
		if total, ok := usable[name]; !ok || a < total {
			usable[name] = a
		}
	}

	return usable
}
