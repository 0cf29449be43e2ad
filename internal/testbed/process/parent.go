// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"io"
	"os"
	"syscall"
	"time"
)

// ParentPipeEnv is set to "stdin" in the environment of every process started by this package: its standard input is a
// pipe that nobody writes to and that ends when the parent does.
const ParentPipeEnv = "CRANE_PARENT_PIPE"

// ExitWithParent makes the calling process end when the parent that started it through this package is gone: it sends
// itself SIGTERM, and exits after grace if that was not enough. It does nothing in a process started otherwise. On Linux
// the kernel ends the child before this is needed; elsewhere this is the only guard.
func ExitWithParent(grace time.Duration) {
	if os.Getenv(ParentPipeEnv) != "stdin" {
		return
	}
	go func() {
		// Only the end of the pipe matters, whether it comes as EOF or as an error.
		_, _ = io.Copy(io.Discard, os.Stdin)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(syscall.SIGTERM)
		}
		time.Sleep(grace)
		os.Exit(1)
	}()
}
