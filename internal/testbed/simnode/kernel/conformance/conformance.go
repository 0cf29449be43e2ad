// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance runs steps with the expected error and the value read afterward on the kernel's cgroup interface.
// The same steps (test/kernelcases) run on a real kernel and on the simulated one of package kernel, which keeps the
// simulation correct. A Player runs the steps.
package conformance

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Op is the operation of a step.
type Op string

// Operations. Make, Remove, Enter and Leave apply to a group, Write and Read to a file of a group.
const (
	// Make creates a group, whose parent must exist.
	Make Op = "make"
	// Remove removes a group.
	Remove Op = "remove"
	// Enter moves a process to a group, which allocates the value in MiB or, if it is Spin, uses all CPU time; a
	// process that cannot enter is killed.
	Enter Op = "enter"
	// Throttled reads as yes if a quota throttles a group within some seconds, and as no if none does within a second.
	Throttled Op = "throttled"
	// Leave kills all processes that have entered a group.
	Leave Op = "leave"
	// Write writes a value and a newline to an existing file.
	Write Op = "write"
	// Read reads a file.
	Read Op = "read"
)

// Spin is a value of Enter.
const Spin = "spin"

// Step is one operation with the expected result.
type Step struct {
	Op Op `json:"op"`
	// Path is the path of a group or file below the test's group.
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
	// Err is the expected error, 0 for none.
	Err syscall.Errno `json:"-"`
	// Reads is the expected trimmed content of the file after a Write or Read, or the result of Throttled. It is
	// ignored if Err means that the file does not exist.
	Reads string `json:"-"`
}

// String returns the step in shell notation.
func (s Step) String() string {
	if s.Op == Write {
		return fmt.Sprintf("echo %q > %s", s.Value, s.Path)
	}

	return strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Op, s.Path, s.Value))
}

// Outcome is the actual result of a step.
type Outcome struct {
	Err   syscall.Errno `json:"err,omitempty"`
	Reads string        `json:"reads,omitempty"`
	// Trouble describes why the step could not be run.
	Trouble string `json:"trouble,omitempty"`
}

// Player runs steps on a kernel. The kernel's errors wrap its syscall.Errno.
type Player interface {
	// Do runs a step; reads is the file's content after a Write or Read, or the result of Throttled.
	Do(s Step) (reads string, err error)
}

// Play runs the steps in order.
func Play(p Player, steps []Step) []Outcome {
	out := make([]Outcome, len(steps))
	for i, s := range steps {
		reads, err := p.Do(s)
		out[i].Reads = strings.TrimSpace(reads)
		if err != nil && !errors.As(err, &out[i].Err) {
			out[i].Trouble = err.Error()
		}
	}

	return out
}
