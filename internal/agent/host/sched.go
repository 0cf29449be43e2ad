// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// SchedStat is what a thread has done since its start (Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat).
type SchedStat struct {
	// RunTime is the time on a CPU, Waited that on a run queue, ready to run.
	RunTime, WaitTime time.Duration
	// Timeslices are how often it was given a CPU.
	Timeslices uint64
}

var errSchedStat = errors.New("wants three numbers")

// ParseSchedStat reads /proc/PID/schedstat. A kernel that does not count says "0 0 0", which is no thread that has ever run, and an error.
func ParseSchedStat(content []byte) (SchedStat, error) {
	var s SchedStat
	err := Lines(content, func(line []byte) error {
		var c [3]uint64
		if n, err := parseColumns(line, c[:]); err != nil || n < len(c) {
			return errors.Join(err, errSchedStat)
		}
		const longest = uint64(1 << 62)
		s = SchedStat{RunTime: time.Duration(min(c[0], longest)), WaitTime: time.Duration(min(c[1], longest)), Timeslices: c[2]}
		return nil
	})
	if err == nil && s == (SchedStat{}) {
		err = errors.New("the kernel does not count")
	}
	if err != nil {
		return SchedStat{}, fmt.Errorf("schedstat: %w", err)
	}
	return s, nil
}

// NewSchedStatFile names the file of a thread that ParseSchedStat reads.
func NewSchedStatFile(root Root, thread uint64) File {
	return NewFile(root.Path("proc", strconv.FormatUint(thread, 10), "schedstat"))
}

// ParseThreads calls each for every thread of a cgroup's list; 0 stands for one that the PID namespace of the reader does not have. An
// empty file is a group without threads.
func ParseThreads(content []byte, each func(thread uint64)) error {
	if len(content) == 0 {
		return nil
	}
	err := Lines(content, func(line []byte) error {
		n, err := Uint(line)
		if err == nil {
			each(n)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("threads: %w", err)
	}
	return nil
}
