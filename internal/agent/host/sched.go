// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Sched is what a thread has done since its start (Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat).
type Sched struct {
	// Ran is the time on a CPU, Waited that on a run queue, ready to run.
	Ran, Waited time.Duration
	// Slices are how often it was given a CPU.
	Slices uint64
}

var errSched = errors.New("wants three numbers")

// ParseSched reads /proc/PID/schedstat. A kernel that does not count says "0 0 0", which is no thread that has ever run, and an error.
func ParseSched(content []byte) (Sched, error) {
	var s Sched
	err := Lines(content, func(line []byte) error {
		var c [3]uint64
		if n, err := columns(line, c[:]); err != nil || n < len(c) {
			return errors.Join(err, errSched)
		}
		const longest = uint64(1 << 62)
		s = Sched{Ran: time.Duration(min(c[0], longest)), Waited: time.Duration(min(c[1], longest)), Slices: c[2]}
		return nil
	})
	if err == nil && s == (Sched{}) {
		err = errors.New("the kernel does not count")
	}
	if err != nil {
		return Sched{}, fmt.Errorf("schedstat: %w", err)
	}
	return s, nil
}

// SchedFile names the file of a thread that ParseSched reads.
func SchedFile(root Root, thread uint64) File {
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
