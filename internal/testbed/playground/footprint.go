// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// footprint is the resident memory of a process in MiB: current and peak.
type footprint struct {
	name      string
	now, peak int
}

// footprints reads the resident memory of processes from /proc. Processes that have exited, and systems without /proc,
// yield no entry.
func footprints(pids map[string]int) []footprint {
	var all []footprint
	for name, pid := range pids {
		now, peak, err := residentMemory(pid)
		if err == nil {
			all = append(all, footprint{name: name, now: now, peak: peak})
		}
	}

	slices.SortFunc(all, func(a, b footprint) int { return cmp.Compare(b.peak, a.peak) })
	return all
}

func residentMemory(pid int) (now, peak int, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()

	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, parseErr := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch {
		case name == "VmHWM" && parseErr == nil:
			peak = kib / 1024
		case name == "VmRSS" && parseErr == nil:
			now = kib / 1024
		}
	}

	if now == 0 && peak == 0 {
		return 0, 0, fmt.Errorf("process %d: no memory figures in its status", pid)
	}

	return now, peak, nil
}

// describe formats footprints in one line: the sum first, then each process.
func describe(all []footprint) string {
	now, peak := 0, 0
	parts := make([]string, 0, len(all))
	for _, f := range all {
		now += f.now
		peak += f.peak
		parts = append(parts, fmt.Sprintf("%s %d", f.name, f.peak))
	}

	return fmt.Sprintf("%d MiB resident now, %d MiB if all had been at their peak at once (%s)", now, peak, strings.Join(parts, ", "))
}
