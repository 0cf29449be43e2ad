// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"crane.io/crane/pkg/numa"
)

// Files that hold what a group is set to. They are all that an agent changes of a group and can put back.
const (
	FileMax      = "cpu.max"
	FileMaxBurst = "cpu.max.burst"
	FileWeight   = "cpu.weight"
	FileQuotaV1  = "cpu.cfs_quota_us"
	FilePeriodV1 = "cpu.cfs_period_us"
	FileBurstV1  = "cpu.cfs_burst_us"
	FileSharesV1 = "cpu.shares"
	FileIdle     = "cpu.idle"
	FileCPUs     = "cpuset.cpus"
	FileMems     = "cpuset.mems"
	FileHigh     = "memory.high"
	FileMemory   = "memory.max"
	FileMemoryV1 = "memory.limit_in_bytes"
)

// settingFiles are the files above by version: v2, and v1 and hybrid.
func settingFiles(v Version) []string {
	if v == V2 {
		return []string{FileMax, FileMaxBurst, FileWeight, FileIdle, FileCPUs, FileMems, FileHigh, FileMemory}
	}
	return []string{FileQuotaV1, FilePeriodV1, FileBurstV1, FileSharesV1, FileIdle, FileCPUs, FileMems, FileMemoryV1}
}

// SettingFile is the path of a file that holds what a group is set to. The error says that there is none of that name in this version of
// cgroups, that the host has no such hierarchy, or that the group is not below its root.
func (l Layout) SettingFile(group, file string) (string, error) {
	if !slices.Contains(settingFiles(l.Version), file) {
		return "", fmt.Errorf("cgroup %s has no setting %.40q", l.Version, file)
	}
	controller, _, _ := strings.Cut(file, ".")
	dir := map[string]string{"cpu": l.cpu, "cpuset": l.cpuset, "memory": l.memory}[controller]
	if dir == "" {
		return "", fmt.Errorf("cgroup %s has no controller %s", l.Version, controller)
	}
	if !filepath.IsLocal(group) {
		return "", fmt.Errorf("group %.80q is not below the root", group)
	}
	return filepath.Join(dir, group, file), nil
}

// ReclaimFile is the path of the file of a group to which an amount of memory is written that is to be had back; false where this version of
// cgroups has none.
func (l Layout) ReclaimFile(group string) (string, bool) {
	if l.Version != V2 || !filepath.IsLocal(group) {
		return "", false
	}
	return filepath.Join(l.memory, group, "memory.reclaim"), true
}

// EqualSettings tells whether a file reads the same after either value was written: the kernel writes lists of CPUs its own way, rounds
// memory down to pages, and takes any quota below 0 of v1 for none.
func EqualSettings(file, a, b string) bool {
	a, b = strings.TrimSpace(a), strings.TrimSpace(b)
	if a == b {
		return true
	}
	switch file {
	case FileCPUs, FileMems:
		x, err := numa.ParseCPUSet(a)
		y, other := numa.ParseCPUSet(b)
		return err == nil && other == nil && x == y
	case FileHigh, FileMemory, FileMemoryV1:
		x, err := strconv.ParseUint(a, 10, 63)
		y, other := strconv.ParseUint(b, 10, 63)
		// arm64 and ppc64 have pages of up to 64 KiB.
		const page = 64 << 10
		return err == nil && other == nil && x < y+page && y < x+page
	case FileQuotaV1:
		x, err := strconv.ParseInt(a, 10, 64)
		y, other := strconv.ParseInt(b, 10, 64)
		return err == nil && other == nil && x < 0 && y < 0
	case FileMax:
		// A period that is not written stays.
		x, y := strings.Fields(a), strings.Fields(b)
		n := min(len(x), len(y))
		return n > 0 && slices.Equal(x[:n], y[:n])
	}
	return false
}
