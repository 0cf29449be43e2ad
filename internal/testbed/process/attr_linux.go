// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr starts the child in its own process group, so that Ctrl-C does not reach it, and makes the kernel kill it
// with its parent.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitZombie blocks until pid has exited without reaping it: the pid, and so the process group ID, stays allocated.
func awaitZombie(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
