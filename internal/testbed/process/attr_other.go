// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package process

import "syscall"

// sysProcAttr puts the child into its own group, so that Ctrl-C reaches only us. The end of its stdin tells it when we
// are gone.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitZombie cannot wait without reaping here.
func awaitZombie(int) bool { return false }
