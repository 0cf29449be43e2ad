// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/numa"
)

// Setting files of a group. These are all files that the agent changes and can restore.
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

// settingFiles returns the setting files of a version.
func settingFiles(v Version) []string {
	if v == V2 {
		return []string{FileMax, FileMaxBurst, FileWeight, FileIdle, FileCPUs, FileMems, FileHigh, FileMemory}
	}

	return []string{FileQuotaV1, FilePeriodV1, FileBurstV1, FileSharesV1, FileIdle, FileCPUs, FileMems, FileMemoryV1}
}

// SettingFile returns the path of a setting file. It returns an error if this cgroup version has no such setting, the host has no such
// hierarchy, or the group is not below its root.
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

// ReadSetting reads a setting of a group, without surrounding white space. The error is host.ErrGone if there is no such file (any more).
func (l Layout) ReadSetting(r *host.Reader, group, file string) (string, error) {
	path, err := l.SettingFile(group, file)
	if err != nil {
		return "", err
	}

	content, err := r.ReadPath(path)
	return strings.TrimSpace(string(content)), err
}

// ReclaimFile returns the path of memory.reclaim of a group; false if this cgroup version has none.
func (l Layout) ReclaimFile(group string) (string, bool) {
	if l.Version != V2 || !filepath.IsLocal(group) {
		return "", false
	}

	return filepath.Join(l.memory, group, "memory.reclaim"), true
}

// EqualSettings reports whether a file reads the same after either value was written: the kernel normalizes CPU lists, rounds memory down
// to pages, and treats any negative v1 quota as none.
func EqualSettings(file, a, b string) bool {
	a = strings.TrimSpace(a)
	b = strings.TrimSpace(b)
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
		x := strings.Fields(a)
		y := strings.Fields(b)
		n := min(len(x), len(y))

		return n > 0 && slices.Equal(x[:n], y[:n])
	}

	return false
}
