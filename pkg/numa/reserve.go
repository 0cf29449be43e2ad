// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

// Reserve takes what is reserved on a machine from its zones, in their order: as much from each as it has, the rest from the next. has is
// what each zone has of a resource. It returns what is taken of each, and what is reserved beyond all zones together. Amounts below 0 count
// as 0.
func Reserve(has []Amount, reserved Amount) (taken []Amount, beyond Amount) {
	return ReserveNamed(has, nil, reserved)
}

// ReserveNamed is Reserve where it is said how much is to be taken of each zone: that is taken first, as far as the zone has it and as it
// is reserved at all. What is reserved besides is taken in the zones' order. Zones for which named has nothing count as 0.
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
