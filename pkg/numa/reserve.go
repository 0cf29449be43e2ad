// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

// Reserve takes what is reserved on a machine from its zones, in their order: as much from each as it has, the rest from the next. has is
// what each zone has of a resource. It returns what is taken of each, and what is reserved beyond all zones together. Amounts below 0 count
// as 0.
func Reserve(has []Amount, reserved Amount) (taken []Amount, beyond Amount) {
	beyond = max(0, reserved)
	taken = make([]Amount, len(has))
	for i, h := range has {
		taken[i] = min(max(0, h), beyond)
		beyond -= taken[i]
	}
	return taken, beyond
}
