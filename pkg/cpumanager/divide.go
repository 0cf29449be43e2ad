// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Divide divides a pod's CPUs by zone among its containers: container i gets wants[i]. Each keeps as many of its previous CPUs had[i] as
// possible; had may be shorter than wants. The rest is assigned, largest container first, to the zone with the fewest CPUs left over, or
// else to as few zones as possible. It returns an error if the containers request more than there are.
func Divide(zones map[string]int, wants []int, had []map[string]int) ([]map[string]int, error) {
	left := maps.Clone(zones)
	all := 0
	wanted := 0

	for zone, n := range zones {
		if n < 0 {
			return nil, fmt.Errorf("%d CPUs of zone %q", n, zone)
		}

		all += n
	}

	for _, n := range wants {
		wanted += max(0, n)
	}

	if wanted > all {
		return nil, fmt.Errorf("the pod's zones have %d CPUs, but its containers request %d", all, wanted)
	}

	out := make([]map[string]int, len(wants))
	missing := slices.Clone(wants)
	give := func(i int, zone string, n int) {
		if n > 0 {
			out[i][zone] += n
			left[zone] -= n
			missing[i] -= n
		}
	}

	names := slices.Sorted(maps.Keys(zones))
	for i := range out {
		out[i] = map[string]int{}
		if i >= len(had) {
			continue
		}

		for _, zone := range names {
			give(i, zone, min(had[i][zone], left[zone], missing[i]))
		}
	}

	order := make([]int, len(wants))
	for i := range order {
		order[i] = i
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(missing[b], missing[a]) })
	for _, i := range order {
		for missing[i] > 0 {
			zone := chooseZone(names, left, missing[i], out[i])
			give(i, zone, min(left[zone], missing[i]))
		}
	}

	return out, nil
}

// chooseZone returns the zone that has n CPUs with the fewest left over, preferring zones that the container is in; if none has as many,
// the one with the most.
func chooseZone(names []string, left map[string]int, n int, in map[string]int) string {
	best := ""
	for _, zone := range names {
		if left[zone] <= 0 {
			continue
		}

		if best == "" || isBetterZone(left[zone], left[best], in[zone] > 0, in[best] > 0, n) {
			best = zone
		}
	}

	return best
}

func isBetterZone(a, b int, aIn, bIn bool, n int) bool {
	if (a >= n) != (b >= n) {
		return a >= n
	}

	if aIn != bIn {
		return aIn
	}

	if a >= n {
		return a < b
	}

	return a > b
}
