// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// CPUTimes holds the times of all CPUs since boot, in ticks of 10 ms (proc(5), /proc/stat).
type CPUTimes struct {
	// Busy is the sum of user, nice, system, irq, softirq and steal. It excludes iowait; guest times are part of user and nice.
	Busy uint64
	// Idle is the sum of idle and iowait.
	Idle uint64
	// CPUs is the number of online CPUs.
	CPUs int
}

// ParseStat parses /proc/stat.
func ParseStat(content []byte) (CPUTimes, error) {
	var t CPUTimes
	total := false

	// The first line sums up all CPUs; the others are only counted.
	err := Lines(content, func(line []byte) error {
		name, rest := Field(line)
		if !bytes.HasPrefix(name, []byte("cpu")) {
			return nil
		}
		if len(name) > len("cpu") {
			t.CPUs++
			return nil
		}

		var err error
		total = true
		t.Busy, t.Idle, err = parseTicks(rest)

		return err
	})

	if err == nil && (!total || t.CPUs == 0) {
		err = errors.New("missing line of all CPUs or of a single one")
	}

	if err != nil {
		return CPUTimes{}, fmt.Errorf("stat: %w", err)
	}

	return t, nil
}

// ParseStatCPUs calls each with the number and the ticks of every online CPU.
func ParseStatCPUs(content []byte, each func(cpu int, busy, idle uint64)) error {
	err := Lines(content, func(line []byte) error {
		name, rest := Field(line)
		number, ok := bytes.CutPrefix(name, []byte("cpu"))
		if !ok || len(number) == 0 {
			return nil
		}

		cpu, err := Uint(number)
		if err != nil || cpu > numa.MaxCPU {
			return errors.Join(err, fmt.Errorf("%.40q is not a CPU", name))
		}

		busy, idle, err := parseTicks(rest)
		if err == nil {
			each(int(cpu), busy, idle)
		}

		return err
	})
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}

	return nil
}

// parseTicks parses the times of a line of /proc/stat.
func parseTicks(line []byte) (busy, idle uint64, err error) {
	var c [8]uint64 // user nice system idle iowait irq softirq steal
	n, err := parseColumns(line, c[:])
	if err != nil || n < 4 {
		return 0, 0, errors.Join(err, errors.New("cpu requires user, nice, system and idle"))
	}

	return c[0] + c[1] + c[2] + c[5] + c[6] + c[7], c[3] + c[4], nil
}

// Memory holds the host's memory as in /proc/meminfo.
type Memory struct {
	Total, Available units.Bytes
	// SwappedOut is memory that exists only in swap; 0 without swap.
	SwappedOut units.Bytes
}

// parseMeminfo parses lines such as "MemTotal: 16384 kB" after skipping some fields. field returns where to store the bytes of a key, nil for
// nowhere.
func parseMeminfo(content []byte, skip int, field func(key []byte) *uint64) error {
	return Lines(content, func(line []byte) error {
		for range skip {
			_, line = Field(line)
		}

		key, rest := Field(line)
		target := field(key)
		if target == nil {
			return nil
		}

		number, _ := Field(rest)
		n, err := Uint(number)
		if err != nil || n > 1<<50 {
			return fmt.Errorf("%s %.40q is not a number of KiB", key, number)
		}

		*target = n << 10
		return nil
	})
}

// ParseMeminfo parses /proc/meminfo. Available is at most Total.
func ParseMeminfo(content []byte) (Memory, error) {
	// A missing key differs from an amount of 0.
	const unset = math.MaxUint64
	total := uint64(unset)
	available := uint64(unset)
	var swap, swapFree, swapCached uint64

	err := parseMeminfo(content, 0, func(key []byte) *uint64 {
		switch string(key) {
		case "MemTotal:":
			return &total
		case "MemAvailable:":
			return &available
		case "SwapTotal:":
			return &swap
		case "SwapFree:":
			return &swapFree
		case "SwapCached:":
			return &swapCached
		}

		return nil
	})

	if err == nil && (total == unset || available == unset || total == 0) {
		err = errors.New("missing MemTotal or MemAvailable")
	}

	if err != nil {
		return Memory{}, fmt.Errorf("meminfo: %w", err)
	}

	m := Memory{Total: units.Bytes(total), Available: units.Bytes(min(available, total))}
	if inMemory := swapFree + swapCached; inMemory < swap {
		m.SwappedOut = units.Bytes(swap - inMemory)
	}

	return m, nil
}

// Load holds the load averages of 1, 5 and 15 minutes.
type Load [3]float64

// ParseLoadavg parses /proc/loadavg.
func ParseLoadavg(content []byte) (Load, error) {
	var l Load
	err := Lines(content, func(line []byte) error {
		for i := range l {
			var field []byte
			field, line = Field(line)
			v, err := parseDecimal(field)
			if err != nil {
				return err
			}

			l[i] = v
		}

		return nil
	})
	if err != nil {
		return Load{}, fmt.Errorf("loadavg: %w", err)
	}

	return l, nil
}

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
