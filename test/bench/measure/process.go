// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPU is the CPU time that a process has taken.
func CPU(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}

	// The name, in parentheses, may hold blanks; utime and stime are the 12th and 13th field after it, in 1/100 s.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))

	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}

	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// Memory is a field of a process's status in bytes: VmHWM, the peak, or VmRSS.
func Memory(pid int, field string) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, field+":"); found {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}

	return 0, fmt.Errorf("no %s", field)
}
