// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package process

import "syscall"

// sysProcAttr starts the child in its own process group, so that Ctrl-C does not reach it. The child detects the exit
// of its parent by the end of its stdin.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitZombie cannot wait without reaping on this system.
func awaitZombie(int) bool { return false }
