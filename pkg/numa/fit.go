// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"slices"

	"crane.io/crane/pkg/units"
)

// Request is a request for resources of a node's zones.
type Request struct {
	// Resources holds the requested amounts; CPU is rounded up to whole cores.
	Resources Resources
	// SingleZone requires all of it in one zone; otherwise it may be spread.
	SingleZone bool
}

// Fit is the result of matching a request with a node.
type Fit int

// Never means that the zones are too small even without owners; NotNow that too much is allocated.
const (
	Never Fit = iota
	NotNow
	Fits
)

// neededAmounts returns a request in the order of the node's resources. Resources that no zone has are ignored.
func (c *capacity) neededAmounts(r Request, buf []Amount) []Amount {
	for _, kind := range c.resources {
		a := max(0, r.Resources[kind])
		if kind == units.CPU {
			a = (a + Core - 1) / Core * Core
		}

		buf = append(buf, a)
	}

	return buf
}

// Fit reports whether r fits into what is free. On a node without zones the result is Never; check HasZones first.
func (n *Node) Fit(r Request) Fit {
	c := &n.capacity
	var buf [4]Amount

	need := c.neededAmounts(r, buf[:0])
	switch {
	case c.fits(need, r.SingleZone, c.free):
		return Fits
	case c.fits(need, r.SingleZone, func(i, k int) Amount { return c.roundFree(k, c.zones[i].usable[k]) }):
		return NotNow
	}

	return Never
}

func (c *capacity) fits(need []Amount, single bool, free func(i, k int) Amount) bool {
	if single {
		for i := range c.zones {
			if c.covers(need, i, free) {
				return true
			}
		}

		return false
	}

	// A spread request fits if the zones together have enough of each resource.
	for k, want := range need {
		for i := range c.zones {
			if want <= 0 {
				break
			}

			want -= free(i, k)
		}

		if want > 0 {
			return false
		}
	}

	return len(c.zones) > 0
}

// covers reports whether zone i alone has all that is needed.
func (c *capacity) covers(need []Amount, i int, free func(i, k int) Amount) bool {
	for k, want := range need {
		if want > free(i, k) {
			return false
		}
	}

	return true
}

// Assign chooses zones for r and returns their shares, or false if r does not fit. It prefers the fewest zones; then those nearest to one
// another; then those that have the CPUs in pairs; then those with the least free CPU, which keeps large free zones for requests that need them; then the first by name. Of
// several zones the one with the most free CPU contributes as much as possible, and so on; of CPU an even number, if the others make up
// for the odd one, since cores have two threads on most machines.
func (n *Node) Assign(r Request) (Placement, bool) {
	c := &n.capacity
	var buf [4]Amount

	need := c.neededAmounts(r, buf[:0])
	set, ok := c.chooseZones(need, r.SingleZone)
	if !ok {
		return nil, false
	}

	// The zone with the most free CPU contributes first.
	byFree := slices.SortedStableFunc(slices.Values(set), func(a, b int) int { return int(c.freeCPU(b) - c.freeCPU(a)) })

	shares := make(map[int]Resources, len(set))
	for position, i := range byFree {
		shares[i] = Resources{}
		for k, kind := range c.resources {
			a := min(need[k], c.free(i, k))
			if kind == units.CPU {
				a = c.shareOfCPU(need[k], i, byFree[position+1:])
			}

			if a > 0 {
				shares[i][kind] = a
				need[k] -= a
			}
		}
	}

	p := make(Placement, 0, len(set))
	for _, i := range set {
		if len(shares[i]) > 0 {
			p = append(p, Share{Zone: c.zones[i].name, Resources: shares[i]})
		}
	}

	return p, true
}

// shareOfCPU returns what zone i contributes to a needed amount of CPU when others follow.
func (c *capacity) shareOfCPU(need Amount, i int, others []int) Amount {
	free := make([]int, len(others))
	for k, other := range others {
		free[k] = int(c.freeCPU(other) / Core)
	}

	return Core * Amount(ShareCPUs(int(need/Core), int(c.freeCPU(i)/Core), free))
}

// ShareCPUs returns how many of the needed CPUs to take of a zone with free ones when other zones provide the rest: as many as possible, but
// an even number if the others then still provide even numbers, so that no zone splits a core of two threads without need.
func ShareCPUs(need, free int, others []int) int {
	share := min(need, free)
	if share == need || share%2 == 0 {
		return share
	}

	even := 0
	for _, n := range others {
		even += n / 2 * 2
	}

	if need-(share-1) <= even {
		share--
	}

	return share
}

// Spread returns the number of zones that Assign would use for r and their closeness: 1 for one zone, less for distant ones (the mean of
// 10 / distance over all pairs). 0 zones means that r does not fit.
func (n *Node) Spread(r Request) (zones int, closeness float64) {
	var buf [4]Amount
	set, ok := n.capacity.chooseZones(n.capacity.neededAmounts(r, buf[:0]), r.SingleZone)
	if !ok {
		return 0, 0
	}

	return len(set), n.capacity.closeness(set)
}

// freeCPU returns the free amount of the first resource, which is CPU if zones have any.
func (c *capacity) freeCPU(i int) Amount {
	if len(c.resources) == 0 {
		return 0
	}

	return c.free(i, 0)
}

// Reserve distributes a reservation over zones in their order, as much as each has available. It returns the share of each zone, and what
// exceeds all zones together. Negative amounts count as 0.
func Reserve(available []Amount, reserved Amount) (shares []Amount, excess Amount) {
	return ReserveNamed(available, nil, reserved)
}

// ReserveNamed is Reserve with amounts named for zones, which are taken first as far as the zone has them and they are reserved. The rest
// is taken in the order of the zones. Missing entries of named count as 0.
func ReserveNamed(available, named []Amount, reserved Amount) (shares []Amount, excess Amount) {
	excess = max(0, reserved)
	shares = make([]Amount, len(available))
	take := func(i int, limit Amount) {
		n := min(max(0, available[i])-shares[i], max(0, limit), excess)
		shares[i] += n
		excess -= n
	}

	for i := range min(len(available), len(named)) {
		take(i, named[i])
	}

	for i := range available {
		take(i, excess)
	}

	return shares, excess
}
