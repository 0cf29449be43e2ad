// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import "slices"

// Request is what is asked of a node's zones.
type Request struct {
	// Resources that are asked, CPU in whole cores (a part of a core counts as one).
	Resources Resources
	// SingleZone asks for all of it in one zone; otherwise it may be spread.
	SingleZone bool
}

// Fit is whether a request fits.
type Fit int

// Never means that the node's zones are too small even when nobody holds anything, so that nobody's leaving helps; NotNow
// that too much is held.
const (
	Never Fit = iota
	NotNow
	Fits
)

// neededAmounts is a request in the order of a node's kinds. Resources that no zone of the node names are not its business.
func (n *Node) neededAmounts(r Request, buf []Amount) []Amount {
	for _, kind := range n.resources {
		a := max(0, r.Resources[kind])
		if kind == CPU {
			a = (a + Core - 1) / Core * Core
		}
		buf = append(buf, a)
	}
	return buf
}

// Fit says whether r fits into what is free. On a node without zones nothing fits ever; ask Known first.
func (n *Node) Fit(r Request) Fit {
	var buf [4]Amount
	need := n.neededAmounts(r, buf[:0])
	switch {
	case n.fits(need, r.SingleZone, n.free):
		return Fits
	case n.fits(need, r.SingleZone, func(i, k int) Amount { return n.roundFree(k, n.zones[i].usable[k]) }):
		return NotNow
	}
	return Never
}

func (n *Node) fits(need []Amount, single bool, free func(i, k int) Amount) bool {
	if single {
		for i := range n.zones {
			if n.covers(need, i, free) {
				return true
			}
		}
		return false
	}
	for k, want := range need {
		for i := range n.zones {
			if want <= 0 {
				break
			}
			want -= free(i, k)
		}
		if want > 0 {
			return false
		}
	}
	return len(n.zones) > 0
}

// covers says whether zone i alone has all that is needed.
func (n *Node) covers(need []Amount, i int, free func(i, k int) Amount) bool {
	for k, want := range need {
		if want > free(i, k) {
			return false
		}
	}
	return true
}

// Assign chooses zones for r and returns each one's share, or false where r does not fit. It takes the fewest zones that
// have enough; among as many, those that are nearest to one another; among these, those with the least free CPU, so that
// large holes stay whole for requests that need them; then the first by name. Where several zones are taken, the one with
// the most free CPU gives as much as it can, and so on.
func (n *Node) Assign(r Request) (Placement, bool) {
	var buf [4]Amount
	need := n.neededAmounts(r, buf[:0])
	set, ok := n.chooseZones(need, r.SingleZone)
	if !ok {
		return nil, false
	}
	// The largest gives first; what is left of every resource goes to the next.
	byFree := slices.SortedStableFunc(slices.Values(set), func(a, b int) int { return int(n.freeCPU(b) - n.freeCPU(a)) })
	given := make(map[int]Resources, len(set))
	for _, i := range byFree {
		given[i] = Resources{}
		for k, kind := range n.resources {
			if a := min(need[k], n.free(i, k)); a > 0 {
				given[i][kind] = a
				need[k] -= a
			}
		}
	}
	p := make(Placement, 0, len(set))
	for _, i := range set {
		if len(given[i]) > 0 {
			p = append(p, Share{Zone: n.zones[i].name, Resources: given[i]})
		}
	}
	return p, true
}

// Spread says over how many zones Assign would spread r and how far apart these are: 1 for one zone, towards 0 the farther
// (the mean of 10 over the distance of each two). 0 zones means that r does not fit.
func (n *Node) Spread(r Request) (zones int, closeness float64) {
	var buf [4]Amount
	set, ok := n.chooseZones(n.neededAmounts(r, buf[:0]), r.SingleZone)
	if !ok {
		return 0, 0
	}
	return len(set), n.closeness(set)
}

// freeCPU is the free amount of the first kind, which is CPU where there is any.
func (n *Node) freeCPU(i int) Amount {
	if len(n.resources) == 0 {
		return 0
	}
	return n.free(i, 0)
}
