// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"

	"crane.io/crane/pkg/series"
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
		if err != nil || cpu > maxCPU {
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

// maxCPU is the largest CPU number; Linux supports at most 8192 CPUs.
const maxCPU = 8191

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
	Total, Available series.Bytes
	// SwappedOut is memory that exists only in swap; 0 without swap.
	SwappedOut series.Bytes
}

// parseKiB parses the value of a meminfo line in KiB and returns bytes.
func parseKiB(key, rest []byte) (uint64, error) {
	number, _ := Field(rest)
	n, err := Uint(number)
	if err != nil || n > 1<<50 {
		return 0, fmt.Errorf("%s %.40q is not a number of KiB", key, number)
	}
	return n << 10, nil
}

// ParseMeminfo parses /proc/meminfo. Available is at most Total.
func ParseMeminfo(content []byte) (Memory, error) {
	var total, available, swap, swapFree, swapCached uint64
	seen := 0
	err := Lines(content, func(line []byte) error {
		key, rest := Field(line)
		var into *uint64
		switch string(key) {
		case "MemTotal:":
			into = &total
		case "MemAvailable:":
			into = &available
		case "SwapTotal:":
			into = &swap
		case "SwapFree:":
			into = &swapFree
		case "SwapCached:":
			into = &swapCached
		default:
			return nil
		}
		var err error
		*into, err = parseKiB(key, rest)
		if key[0] == 'M' {
			seen++
		}
		return err
	})
	if err == nil && (seen != 2 || total == 0) {
		err = errors.New("missing MemTotal or MemAvailable")
	}
	if err != nil {
		return Memory{}, fmt.Errorf("meminfo: %w", err)
	}
	m := Memory{Total: series.Bytes(total), Available: series.Bytes(min(available, total))}
	if inMemory := swapFree + swapCached; inMemory < swap {
		m.SwappedOut = series.Bytes(swap - inMemory)
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
