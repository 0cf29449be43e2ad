// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"math"
	"math/bits"
	"slices"
)

// maxExhaustiveZones is the number of zones up to which all combinations are compared: at most C(12,6) = 924 of one size. Above it one
// set is grown from each of the maxSeeds largest zones.
const (
	maxExhaustiveZones = 12
	maxSeeds           = 16
)

// chooseZones returns the zones for need in ascending order, as described at Assign.
func (n *Node) chooseZones(need []Amount, single bool) ([]int, bool) {
	if !n.fits(need, single, n.free) {
		return nil, false
	}
	if i, ok := n.bestSingle(need); ok {
		return []int{i}, true
	}
	if len(n.zones) > maxExhaustiveZones {
		return n.greedySet(need), true
	}
	for size := n.minZones(need); size <= len(n.zones); size++ {
		if set := n.bestSet(need, size); set != nil {
			return set, true
		}
	}
	return nil, false // unreachable: all zones together have enough
}

// bestSingle returns the zone with the least free CPU that has enough of everything.
func (n *Node) bestSingle(need []Amount) (int, bool) {
	best := -1
	for i := range n.zones {
		if n.covers(need, i, n.free) && (best < 0 || n.freeCPU(i) < n.freeCPU(best)) {
			best = i
		}
	}
	return best, best >= 0
}

// minZones returns a lower bound of the number of zones: for each resource, as many of the largest as it takes.
func (n *Node) minZones(need []Amount) int {
	least := 2
	for k, want := range need {
		free := make([]Amount, len(n.zones))
		for i := range free {
			free[i] = n.free(i, k)
		}
		slices.Sort(free)
		size := 0
		for ; want > 0 && size < len(free); size++ {
			want -= free[len(free)-1-size]
		}
		least = max(least, size)
	}
	return least
}

// bestSet returns the best set of the given size, or nil if none has enough. It enumerates bit masks with size bits set in ascending
// order (Gosper's hack, HAKMEM item 175).
func (n *Node) bestSet(need []Amount, size int) []int {
	var (
		best     []int
		bestFar  = math.MaxInt
		bestFree = Amount(math.MaxInt64)
		set      = make([]int, 0, size)
	)
	for mask := uint64(1)<<size - 1; mask < 1<<len(n.zones); {
		set = set[:0]
		for m := mask; m != 0; m &= m - 1 {
			set = append(set, bits.TrailingZeros64(m))
		}
		if n.setCovers(need, set) {
			far, free := n.sumDistances(set), n.sumFreeCPU(set)
			if far < bestFar || far == bestFar && free < bestFree {
				best, bestFar, bestFree = slices.Clone(set), far, free
			}
		}
		low := mask & -mask
		up := mask + low
		mask = up | (mask^up)/low>>2
	}
	return best
}

// greedySet grows a set from each of the largest zones, nearest zones first, and returns the best.
func (n *Node) greedySet(need []Amount) []int {
	order := make([]int, len(n.zones))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(n.freeCPU(b) - n.freeCPU(a)) })
	var best []int
	for _, seed := range order[:min(maxSeeds, len(order))] {
		rest := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return i == seed })
		slices.SortStableFunc(rest, func(a, b int) int { return n.distance(seed, a) - n.distance(seed, b) })
		set := []int{seed}
		for !n.setCovers(need, set) {
			set, rest = append(set, rest[0]), rest[1:]
		}
		set = n.prune(need, set)
		if best == nil || len(set) < len(best) || len(set) == len(best) && n.sumDistances(set) < n.sumDistances(best) {
			best = set
		}
	}
	slices.Sort(best)
	return best
}

// prune drops zones that are not needed, smallest first.
func (n *Node) prune(need []Amount, set []int) []int {
	for _, i := range slices.SortedStableFunc(slices.Values(set), func(a, b int) int { return int(n.freeCPU(a) - n.freeCPU(b)) }) {
		if without := slices.DeleteFunc(slices.Clone(set), func(j int) bool { return j == i }); n.setCovers(need, without) {
			set = without
		}
	}
	return set
}

// setCovers reports whether the zones of set together have what is needed.
func (n *Node) setCovers(need []Amount, set []int) bool {
	for k, want := range need {
		for _, i := range set {
			want -= n.free(i, k)
		}
		if want > 0 {
			return false
		}
	}
	return true
}

func (n *Node) sumFreeCPU(set []int) (sum Amount) {
	for _, i := range set {
		sum += n.freeCPU(i)
	}
	return sum
}

// sumDistances returns the sum of distances between all pairs of zones of set.
func (n *Node) sumDistances(set []int) (sum int) {
	for a, i := range set {
		for _, j := range set[a+1:] {
			sum += n.distance(i, j)
		}
	}
	return sum
}

func (n *Node) closeness(set []int) float64 {
	if len(set) < 2 {
		return 1
	}
	sum, pairs := 0.0, 0
	for a, i := range set {
		for _, j := range set[a+1:] {
			sum += localDistance / float64(n.distance(i, j))
			pairs++
		}
	}
	return sum / float64(pairs)
}

// distance returns the distance of zones i and j, the larger of both directions if known.
func (n *Node) distance(i, j int) int {
	if i == j {
		return localDistance
	}
	var d int32
	if row := n.zones[i].distances; row != nil {
		d = row[j]
	}
	if row := n.zones[j].distances; row != nil {
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
