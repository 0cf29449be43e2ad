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
// pipe that is never written to and that closes when the parent exits.
const ParentPipeEnv = "CRANE_PARENT_PIPE"

// ExitWithParent ends the calling process when the parent that started it through this package has exited: it sends
// itself SIGTERM, and exits after grace. It does nothing in other processes. On Linux the kernel kills the child
// earlier; on other systems this is the only protection.
func ExitWithParent(grace time.Duration) {
	if os.Getenv(ParentPipeEnv) != "stdin" {
		return
	}
	go func() {
		// The end of the pipe arrives as EOF or as an error.
		_, _ = io.Copy(io.Discard, os.Stdin)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(syscall.SIGTERM)
		}
		time.Sleep(grace)
		os.Exit(1)
	}()
}
