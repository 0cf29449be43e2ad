// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package perf

import "time"

// reading is what a group of counters of one CPU has counted (struct read_format in linux/perf_event.h).
type reading struct {
	cycles, instructions uint64
	// enabled is how long they were to count, running how long they did: where there are more counters in use than the CPU has, they take
	// turns. Neither is time in which the pod was not on the CPU.
	enabled, running time.Duration
}

// counter is a group of counters of a pod and a CPU.
type counter interface {
	read() (reading, error)
	close()
}

// totals is what all CPUs have counted.
type totals struct {
	cycles, instructions float64
	enabled, running     time.Duration
}

// add takes a CPU in, with what it has not counted made up for: the time in which others had the counters was like that in which they were
// the pod's.
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
	// minRunning is how long counters have to have counted: less says nothing of a pod.
	minRunning = 10 * time.Millisecond
	// minRunningShare is the share of the time that they have to have counted.
	minRunningShare = 0.05
)

// cyclesPerInstruction is not known where there was too little to count, or counters were somebody else's nearly all of the time.
func (s *totals) cyclesPerInstruction() (float64, bool) {
	if s.running < minRunning || float64(s.running) < minRunningShare*float64(s.enabled) || s.instructions <= 0 || s.cycles <= 0 {
		return 0, false
	}
	return s.cycles / s.instructions, true
}
