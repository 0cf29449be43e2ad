// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// RestartPolicy says what happens when a process ends without having been stopped.
type RestartPolicy int

const (
	// Never leaves it ended.
	Never RestartPolicy = iota
	// Always starts it again after a back-off, whatever its exit status.
	Always
)

// Defaults of a Spec's zero fields.
const (
	DefaultStopTimeout = 15 * time.Second
	DefaultMinBackoff  = time.Second
	DefaultMaxBackoff  = 30 * time.Second
	DefaultLastLines   = 20
	// maxLogBytes is the size at which a log file is set aside as LogFile.1 and begun anew: two such files per process
	// are enough to see how a failure began and small beside the data of a playground.
	maxLogBytes = 16 << 20
)

// Spec describes one process to run. The zero value of every field but Name and Path is usable.
type Spec struct {
	// Name is what reports and errors call the process.
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
	// Restart says what to do when the process ends by itself.
	Restart RestartPolicy
	// MinBackoff is the wait before the first restart; it doubles up to MaxBackoff and falls back to MinBackoff once the
	// process has stayed up for MaxBackoff.
	MinBackoff, MaxBackoff time.Duration
	// StopTimeout bounds the time between SIGTERM and SIGKILL in Stop.
	StopTimeout time.Duration
	// LastLines is how many lines of output are kept for reports.
	LastLines int
	// OnExit is called, from the goroutine that watches the process, each time it ends without having been stopped. It
	// must not call Stop on the same process.
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

// Exit tells how a process ended that had not been stopped.
type Exit struct {
	Name string
	// PID is 0 when the program could not be started at all.
	PID int
	// Err is nil for exit status 0.
	Err    error
	Uptime time.Duration
	// LastLines is the end of its output, oldest first.
	LastLines []string
	// RestartIn is the time until the next start; negative means that there is none.
	RestartIn time.Duration
}

// String is the report for a person: one line of what happened, then the last lines of output, indented.
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

// backoff returns the wait before the next start, given the wait before the last one (0 for none) and how long the
// process stayed up.
func (s Spec) backoff(last, uptime time.Duration) time.Duration {
	if last == 0 || uptime >= s.MaxBackoff {
		return s.MinBackoff
	}
	return min(2*last, s.MaxBackoff)
}
