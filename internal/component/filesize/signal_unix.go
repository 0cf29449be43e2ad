// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package filesize lets a process survive the limit of the size of its files.
package filesize

import (
	"os/signal"
	"syscall"
)

// IgnoreSignal ignores the signal of a write beyond RLIMIT_FSIZE, which ends a process by default. The write returns an error instead, as it
// does on a full disk.
func IgnoreSignal() { signal.Ignore(syscall.SIGXFSZ) }
