// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

// Reserve distributes a reservation over zones in their order, as much as each has. It returns the amount taken of each zone, and what
// exceeds all zones together. Negative amounts count as 0.
func Reserve(has []Amount, reserved Amount) (taken []Amount, beyond Amount) {
	return ReserveNamed(has, nil, reserved)
}

// ReserveNamed is Reserve with amounts named for zones, which are taken first as far as the zone has them and they are reserved. The rest
// is taken in the order of the zones. Missing entries of named count as 0.
func ReserveNamed(has, named []Amount, reserved Amount) (taken []Amount, beyond Amount) {
	beyond = max(0, reserved)
	taken = make([]Amount, len(has))
	take := func(i int, most Amount) {
		n := min(max(0, has[i])-taken[i], max(0, most), beyond)
		taken[i] += n
		beyond -= n
	}
	for i := range min(len(has), len(named)) {
		take(i, named[i])
	}
	for i := range has {
		take(i, beyond)
	}
	return taken, beyond
}
