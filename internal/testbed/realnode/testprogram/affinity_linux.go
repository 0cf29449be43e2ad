// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package testprogram

import "golang.org/x/sys/unix"

// allowedCPUs returns the number of CPUs this process may run on, 0 if unknown.
func allowedCPUs() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0
	}

	return set.Count()
}
