// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"crane.io/crane/internal/component/backoff"
)

// RestartPolicy defines what happens after an unrequested exit.
type RestartPolicy int

const (
	// Never does not restart the process.
	Never RestartPolicy = iota
	// Always restarts the process with backoff, whatever its exit status.
	Always
)

// Defaults of a Spec's zero fields.
const (
	DefaultStopTimeout = 15 * time.Second
	DefaultMinBackoff  = time.Second
	DefaultMaxBackoff  = 30 * time.Second
	DefaultLastLines   = 20
	// maxLogBytes is the size at which a log file is renamed to LogFile.1 and a new one is started.
	maxLogBytes = 16 << 20
)

// Spec describes a process. All fields except Name and Path are optional.
type Spec struct {
	// Name identifies the process in reports and errors.
	Name string
	// Path is the program; it is not looked up in PATH.
	Path string
	Args []string
	// Env is added to this process's environment; the last of equal names wins.
	Env []string
	// Dir is the working directory; empty means this process's own.
	Dir string
	// LogFile receives stdout and stderr, appended, with mode 0600; empty keeps only the last lines.
	LogFile string
	// Restart is the restart policy.
	Restart RestartPolicy
	// MinBackoff is the wait before the first restart; it doubles up to MaxBackoff and is reset to MinBackoff after an
	// uptime of MaxBackoff.
	MinBackoff, MaxBackoff time.Duration
	// StopTimeout bounds the time between SIGTERM and SIGKILL in Stop.
	StopTimeout time.Duration
	// LastLines is the number of output lines kept for reports.
	LastLines int
	// OnExit is called from the supervising goroutine after each unrequested exit. It must not call Stop on the same
	// process.
	OnExit func(Exit)
}

func (s Spec) withDefaults() (Spec, error) {
	if s.Name == "" || s.Path == "" {
		return s, errors.New("process: a Spec needs Name and Path")
	}

	if s.MinBackoff <= 0 {
		s.MinBackoff = DefaultMinBackoff
	}

	if s.MaxBackoff <= 0 {
		s.MaxBackoff = max(DefaultMaxBackoff, s.MinBackoff)
	}

	if s.StopTimeout <= 0 {
		s.StopTimeout = DefaultStopTimeout
	}

	if s.LastLines <= 0 {
		s.LastLines = DefaultLastLines
	}

	return s, nil
}

// Exit describes an unrequested exit.
type Exit struct {
	Name string
	// PID is 0 if the program could not be started.
	PID int
	// Err is nil for exit status 0.
	Err    error
	Uptime time.Duration
	// LastLines contains the last lines of output, oldest first.
	LastLines []string
	// RestartIn is the time until the next start; negative if there is none.
	RestartIn time.Duration
}

// String returns a line that describes the exit, followed by the indented last lines of output.
func (e Exit) String() string {
	var b strings.Builder
	status := "exit status 0"
	if e.Err != nil {
		status = e.Err.Error()
	}

	fmt.Fprintf(&b, "%s (pid %d) ended after %s: %s", e.Name, e.PID, e.Uptime.Round(time.Millisecond), status)
	if e.RestartIn >= 0 {
		fmt.Fprintf(&b, "; restart in %s", e.RestartIn)
	}

	for _, line := range e.LastLines {
		b.WriteString("\n    " + line)
	}

	return b.String()
}

// backoff returns the wait before the next start, given the previous wait (0 for none) and the uptime.
func (s Spec) backoff(last, uptime time.Duration) time.Duration {
	delays := backoff.Exponential{First: s.MinBackoff, Last: s.MaxBackoff}
	if uptime >= s.MaxBackoff {
		return delays.First
	}

	return delays.Next(last)
}

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
