// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"time"
)

// reading is the content of a counter group on one CPU (struct read_format in linux/perf_event.h).
type reading struct {
	cycles, instructions uint64
	// enabled is how long the group was to count, and running how long it did: the kernel multiplexes more counters than the CPU has.
	// Both leave out the time in which the pod was not on the CPU.
	enabled, running time.Duration
}

// errNoTimes reports counters whose values advance while the kernel keeps no time for them. Linux does this for a cgroup between whose
// processes and those of other groups no CPU has switched yet, such as the root group of a hierarchy without other groups in use.
var errNoTimes = errors.New("the kernel keeps no counter times for this cgroup: it is the root group, or perf_event groups are not in use")

// validate returns errNoTimes for values that cannot be scaled.
func (r reading) validate() error {
	if r.cycles > 0 && r.enabled == 0 {
		return errNoTimes
	}
	return nil
}

// counter is a counter group of a pod on one CPU.
type counter interface {
	read() (reading, error)
	close()
}

// totals sums the readings of all CPUs.
type totals struct {
	cycles, instructions float64
	enabled, running     time.Duration
}

// add adds the reading of a CPU. It scales the values up to the time enabled, which assumes that the pod behaved the same while its counters
// were multiplexed out.
func (s *totals) add(c reading) {
	s.enabled += c.enabled
	if c.running <= 0 || c.enabled < c.running {
		return
	}
	scale := float64(c.enabled) / float64(c.running)
	s.running += c.running
	s.cycles += scale * float64(c.cycles)
	s.instructions += scale * float64(c.instructions)
}

const (
	// minRunning is the minimum running time of a usable sample.
	minRunning = 10 * time.Millisecond
	// minRunningShare is the minimum running time as a share of the time enabled.
	minRunningShare = 0.05
)

// cyclesPerInstruction returns false if too little was counted or the counters were multiplexed out nearly all of the time.
func (s *totals) cyclesPerInstruction() (float64, bool) {
	if s.running < minRunning || float64(s.running) < minRunningShare*float64(s.enabled) || s.instructions <= 0 || s.cycles <= 0 {
		return 0, false
	}
	return s.cycles / s.instructions, true
}
