// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr puts the child into its own group, so that Ctrl-C reaches only us, and lets the kernel end it with us.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitZombie blocks until pid has ended and leaves it unreaped: its pid, and so its group's id, stay taken.
func awaitZombie(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
