// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Divide divides a pod's CPUs by zone among its containers: container i gets requested[i]. Each keeps as many of its CPUs current[i] as
// possible; current may be shorter than requested. The rest is assigned, largest container first, to the zone with the fewest CPUs left
// over, or else to as few zones as possible. It returns an error if the containers request more than there are.
func Divide(zones map[string]int, requested []int, current []map[string]int) ([]map[string]int, error) {
	remaining := maps.Clone(zones)
	available := 0
	total := 0

	for zone, n := range zones {
		if n < 0 {
			return nil, fmt.Errorf("%d CPUs of zone %q", n, zone)
		}

		available += n
	}

	for _, n := range requested {
		total += max(0, n)
	}

	if total > available {
		return nil, fmt.Errorf("the pod's zones have %d CPUs, but its containers request %d", available, total)
	}

	out := make([]map[string]int, len(requested))
	missing := slices.Clone(requested)
	assign := func(i int, zone string, n int) {
		if n > 0 {
			out[i][zone] += n
			remaining[zone] -= n
			missing[i] -= n
		}
	}

	// Each container keeps the CPUs that it has, as far as its zones still have them.
	names := slices.Sorted(maps.Keys(zones))
	for i := range out {
		out[i] = map[string]int{}
		if i >= len(current) {
			continue
		}

		for _, zone := range names {
			assign(i, zone, min(current[i][zone], remaining[zone], missing[i]))
		}
	}

	// The largest container comes first, since it is the hardest to fit into one zone.
	order := make([]int, len(requested))
	for i := range order {
		order[i] = i
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(missing[b], missing[a]) })
	for _, i := range order {
		for missing[i] > 0 {
			zone := chooseZone(names, remaining, missing[i], out[i])
			assign(i, zone, min(remaining[zone], missing[i]))
		}
	}

	return out, nil
}

// chooseZone returns the zone that has n CPUs with the fewest left over, preferring zones that the container is in; if none has as many,
// the one with the most.
func chooseZone(names []string, remaining map[string]int, n int, assigned map[string]int) string {
	best := ""
	for _, zone := range names {
		if remaining[zone] <= 0 {
			continue
		}

		if best == "" || isBetterZone(remaining[zone], remaining[best], assigned[zone] > 0, assigned[best] > 0, n) {
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
