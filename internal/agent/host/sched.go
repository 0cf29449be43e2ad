// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// SchedStat holds the scheduler statistics of a thread since its start (Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat).
type SchedStat struct {
	// RunTime is the time on a CPU, WaitTime the time ready on a run queue.
	RunTime, WaitTime time.Duration
	// Timeslices counts how often the thread was scheduled.
	Timeslices uint64
}

var errSchedStat = errors.New("requires three numbers")

// ParseSchedStat parses /proc/PID/schedstat. Kernels without these statistics write "0 0 0", which is an error.
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
		err = errors.New("the kernel keeps no statistics")
	}
	if err != nil {
		return SchedStat{}, fmt.Errorf("schedstat: %w", err)
	}
	return s, nil
}

// NewSchedStatFile returns the schedstat file of a thread.
func NewSchedStatFile(root Root, thread uint64) File {
	return NewFile(root.Path("proc", strconv.FormatUint(thread, 10), "schedstat"))
}

// ParseThreads calls each for every thread of a cgroup; 0 stands for a thread outside the reader's PID namespace. An empty file is a
// cgroup without threads.
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
