// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package testprogram

import "golang.org/x/sys/unix"

// allowedCPUs counts the CPUs this process may run on, 0 where the kernel does not say.
func allowedCPUs() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0
	}
	return set.Count()
}
