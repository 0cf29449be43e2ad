// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"crane.io/crane/pkg/units"
)

// maxExhaustiveZones is the number of zones up to which all combinations are compared: at most C(12,6) = 924 of one size. Above it one
// set is grown from each of the maxSeeds largest zones.
const (
	maxExhaustiveZones = 12
	maxSeeds           = 16
)

// chooseZones returns the zones for need in ascending order, as described at Assign.
func (c *capacity) chooseZones(need []Amount, single bool) ([]int, bool) {
	if !c.fits(need, single, c.free) {
		return nil, false
	}

	if i, ok := c.bestSingle(need); ok {
		return []int{i}, true
	}

	if len(c.zones) > maxExhaustiveZones {
		return c.greedySet(need), true
	}

	for size := c.minZones(need); size <= len(c.zones); size++ {
		if set := c.bestSet(need, size); set != nil {
			return set, true
		}
	}

	return nil, false // unreachable: all zones together have enough
}

// bestSingle returns the zone with the least free CPU that has enough of everything.
func (c *capacity) bestSingle(need []Amount) (int, bool) {
	best := -1
	for i := range c.zones {
		if c.covers(need, i, c.free) && (best < 0 || c.freeCPU(i) < c.freeCPU(best)) {
			best = i
		}
	}

	return best, best >= 0
}

// minZones returns a lower bound of the number of zones: for each resource, as many of the largest as it takes.
func (c *capacity) minZones(need []Amount) int {
	minimum := 2
	for k, want := range need {
		free := make([]Amount, len(c.zones))
		for i := range free {
			free[i] = c.free(i, k)
		}

		slices.Sort(free)
		size := 0
		for ; want > 0 && size < len(free); size++ {
			want -= free[len(free)-1-size]
		}

		minimum = max(minimum, size)
	}

	return minimum
}

// bestSet returns the best set of the given size, or nil if none has enough. It enumerates bit masks with size bits set in ascending
// order (Gosper's hack, HAKMEM item 175).
func (c *capacity) bestSet(need []Amount, size int) []int {
	var (
		best     []int
		bestFar  = math.MaxInt
		bestOdd  = Amount(math.MaxInt64)
		bestFree = Amount(math.MaxInt64)
		set      = make([]int, 0, size)
	)

	for mask := uint64(1)<<size - 1; mask < 1<<len(c.zones); {
		set = set[:0]
		for m := mask; m != 0; m &= m - 1 {
			set = append(set, bits.TrailingZeros64(m))
		}

		if c.setCovers(need, set) {
			far := c.sumDistances(set)
			odd := c.oddCPU(need, set)
			free := c.sumFreeCPU(set)
			if cmp.Or(cmp.Compare(far, bestFar), cmp.Compare(odd, bestOdd), cmp.Compare(free, bestFree)) < 0 {
				best = slices.Clone(set)
				bestFar = far
				bestOdd = odd
				bestFree = free
			}
		}

		// The next larger mask with the same number of bits.
		low := mask & -mask
		carried := mask + low
		mask = carried | (mask^carried)/low>>2
	}

	return best
}

// greedySet grows a set from each of the largest zones, nearest zones first, and returns the best.
func (c *capacity) greedySet(need []Amount) []int {
	order := make([]int, len(c.zones))
	for i := range order {
		order[i] = i
	}

	slices.SortStableFunc(order, func(a, b int) int { return int(c.freeCPU(b) - c.freeCPU(a)) })
	var best []int
	for _, seed := range order[:min(maxSeeds, len(order))] {
		rest := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return i == seed })
		slices.SortStableFunc(rest, func(a, b int) int { return c.distance(seed, a) - c.distance(seed, b) })

		set := []int{seed}
		for !c.setCovers(need, set) {
			set = append(set, rest[0])
			rest = rest[1:]
		}

		// The zones that were added last may have made earlier ones unnecessary.
		set = c.prune(need, set)
		if best == nil || cmp.Or(
			cmp.Compare(len(set), len(best)),
			cmp.Compare(c.sumDistances(set), c.sumDistances(best)),
			cmp.Compare(c.oddCPU(need, set), c.oddCPU(need, best)),
		) < 0 {
			best = set
		}
	}

	slices.Sort(best)
	return best
}

// prune drops zones that are not needed, smallest first.
func (c *capacity) prune(need []Amount, set []int) []int {
	for _, i := range slices.SortedStableFunc(slices.Values(set), func(a, b int) int { return int(c.freeCPU(a) - c.freeCPU(b)) }) {
		if without := slices.DeleteFunc(slices.Clone(set), func(j int) bool { return j == i }); c.setCovers(need, without) {
			set = without
		}
	}

	return set
}

// setCovers reports whether the zones of set together have what is needed.
func (c *capacity) setCovers(need []Amount, set []int) bool {
	for k, want := range need {
		for _, i := range set {
			want -= c.free(i, k)
		}

		if want > 0 {
			return false
		}
	}

	return true
}

func (c *capacity) sumFreeCPU(set []int) (sum Amount) {
	for _, i := range set {
		sum += c.freeCPU(i)
	}

	return sum
}

// oddCPU returns how much of the needed CPU the zones of set do not have in pairs of CPUs: that much splits cores of two threads.
func (c *capacity) oddCPU(need []Amount, set []int) Amount {
	if len(c.resources) == 0 || c.resources[0] != units.CPU {
		return 0
	}

	odd := need[0]
	for _, i := range set {
		odd -= c.freeCPU(i) / (2 * Core) * (2 * Core)
	}

	return max(0, odd)
}

// sumDistances returns the sum of distances between all pairs of zones of set.
func (c *capacity) sumDistances(set []int) (sum int) {
	for a, i := range set {
		for _, j := range set[a+1:] {
			sum += c.distance(i, j)
		}
	}

	return sum
}

func (c *capacity) closeness(set []int) float64 {
	if len(set) < 2 {
		return 1
	}

	sum, pairs := 0.0, 0
	for a, i := range set {
		for _, j := range set[a+1:] {
			sum += localDistance / float64(c.distance(i, j))
			pairs++
		}
	}

	return sum / float64(pairs)
}

// distance returns the distance of zones i and j, the larger of both directions if known.
func (c *capacity) distance(i, j int) int {
	if i == j {
		return localDistance
	}

	var d int32
	if row := c.zones[i].distances; row != nil {
		d = row[j]
	}
	if row := c.zones[j].distances; row != nil {
		d = max(d, row[i])
	}

	if d == 0 {
		return remoteDistance
	}

	return int(d)
}

// newDistanceRow returns the distances of z to all zones; 0 for unknown. Distances below the local one are raised to it.
func newDistanceRow(z Zone, zones []Zone) []int32 {
	row := make([]int32, len(zones))
	for j, other := range zones {
		if d, ok := z.Distances[other.Name]; ok {
			row[j] = int32(min(max(d, localDistance), math.MaxInt16))
		}
	}

	return row
}
