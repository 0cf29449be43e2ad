// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance holds what a kernel is known to say to writes to cgroups: steps with the error and the value that is read then. The
// same steps are played on a real kernel and on the one that stands in for it in tests, so that the latter is as true as the table is
// long. It knows neither; a Player does the steps.
package conformance

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Op is what a step does.
type Op string

// The operations. Make, Remove, Enter and Leave are of a group, Write and Read of a file of a group.
const (
	// Make makes a group, whose parent has to be there.
	Make Op = "make"
	// Remove removes a group.
	Remove Op = "remove"
	// Enter puts a process into a group, which takes as many MiB of memory as the value says, or all cpu that it gets where that is Spin;
	// one that may not in is no more.
	Enter Op = "enter"
	// Throttled reads as yes where a quota stops processes of a group within some seconds, and as no where none has within a second.
	Throttled Op = "throttled"
	// Leave ends all processes that have entered a group.
	Leave Op = "leave"
	// Write writes a value and a newline to a file that is there.
	Write Op = "write"
	// Read reads a file.
	Read Op = "read"
)

// Spin is the value of an Enter.
const Spin = "spin"

// Step is one operation, and what a kernel answers.
type Step struct {
	Op Op `json:"op"`
	// Path is a group's, or a file's, below the group that all is played in.
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
	// Err is what the kernel answers, 0 for nothing.
	Err syscall.Errno `json:"-"`
	// Reads is what the file of a Write or Read holds then, without blanks around it, or what Throttled does. It is not looked at where there is an error that says
	// that there is no such file.
	Reads string `json:"-"`
}

// String is the step as a shell would have it.
func (s Step) String() string {
	if s.Op == Write {
		return fmt.Sprintf("echo %q > %s", s.Value, s.Path)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Op, s.Path, s.Value))
}

// Outcome is what a kernel has answered to a step.
type Outcome struct {
	Err   syscall.Errno `json:"err,omitempty"`
	Reads string        `json:"reads,omitempty"`
	// Trouble is what kept the step from being done at all.
	Trouble string `json:"trouble,omitempty"`
}

// Player does steps on a kernel. Errors that are a kernel's answer wrap its syscall.Errno.
type Player interface {
	// Do does a step; reads is what the file of a Write or Read holds then, or what a Throttled says.
	Do(s Step) (reads string, err error)
}

// Play does the steps one after the other.
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

// Differences are the steps that were answered otherwise than the table says, a line each.
func Differences(steps []Step, got []Outcome) []string {
	if len(got) != len(steps) {
		return []string{fmt.Sprintf("%d answers to %d steps", len(got), len(steps))}
	}
	var out []string
	for i, s := range steps {
		g := got[i]
		switch {
		case g.Trouble != "":
			out = append(out, fmt.Sprintf("step %d, %s: %s", i, s, g.Trouble))
		case g.Err != s.Err:
			out = append(out, fmt.Sprintf("step %d, %s: %s, want %s", i, s, name(g.Err), name(s.Err)))
		case s.Err != syscall.ENOENT && (s.Op == Write || s.Op == Read || s.Op == Throttled) && g.Reads != s.Reads:
			out = append(out, fmt.Sprintf("step %d, %s: reads %q, want %q", i, s, g.Reads, s.Reads))
		}
	}
	return out
}

func name(e syscall.Errno) string {
	if e == 0 {
		return "no error"
	}
	return e.Error()
}
