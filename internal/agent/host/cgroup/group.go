// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/units"
)

// Part is a set of readable parts of a group.
type Part uint8

// Parts of a group.
const (
	// CPU is the used and throttled time.
	CPU Part = 1 << iota
	// Quota is the CPU limit.
	Quota
	// Memory is the memory use.
	Memory
	// Pressure is the stall time for CPU, memory and disks.
	Pressure
	// High is memory.high of v2.
	High
)

// Stat holds the statistics of a group. Parts missing in Has could not be read; their fields are zero and mean unknown.
type Stat struct {
	Has Part
	// CPUTime is the total CPU time since the creation of the group.
	CPUTime time.Duration
	// Periods counts enforcement periods in which the group ran, Throttled those in which it exhausted its quota; ThrottledTime is how
	// long its threads waited for the next period.
	Periods, Throttled uint64
	ThrottledTime      time.Duration
	Limit              Bandwidth
	// Used is all memory, WorkingSet excludes inactive files, RSS is that of processes, Cache that of files. Shared is the part of Cache that
	// belongs to shared memory and tmpfs.
	Used, WorkingSet, RSS, Cache, Shared units.Bytes
	// High is memory.high, math.MaxInt64 for none.
	High    units.Bytes
	Stalled struct{ CPU, Memory, IO host.Pressure }
}

// Bandwidth is a CPU limit of Quota per Period. A negative Quota means unlimited.
type Bandwidth struct {
	Quota, Period time.Duration
}

// MinQuota is the least quota that the kernel accepts.
const MinQuota = time.Millisecond

// NewBandwidth returns a CPU limit, or the least that the kernel accepts.
func NewBandwidth(limit units.MilliCPU, period time.Duration) Bandwidth {
	return Bandwidth{Quota: max(time.Duration(float64(limit)*float64(period)/1000), MinQuota), Period: period}
}

// Unlimited reports whether there is no limit.
func (b Bandwidth) Unlimited() bool { return b.Quota < 0 || b.Period <= 0 }

// Cores returns the limit in cores. It is undefined if Unlimited.
func (b Bandwidth) Cores() float64 { return float64(b.Quota) / float64(b.Period) }

// IsScaled reports whether the kernel made b of a limit: its period timer may lengthen period and quota of a throttled group by the same
// factor (147/128 before Linux 5.4, then 2; sched_cfs_period_timer in kernel/sched/fair.c). The kernel rounds both to microseconds.
func (b Bandwidth) IsScaled(limit Bandwidth) bool {
	if b.Unlimited() || limit.Unlimited() || b.Period <= limit.Period {
		return false
	}

	rounding := float64(2*time.Microsecond) / float64(limit.Period)
	return math.Abs(b.Cores()-limit.Cores()) <= rounding*max(1, limit.Cores())
}

// group holds the open files of a cgroup.
type group struct {
	files   [fileCount]host.File
	missing [fileCount]bool // files that this kernel does not have
}

const (
	fileCPUStat = iota
	fileCPUUsage
	fileQuota
	filePeriod
	fileMemoryUsed
	fileMemoryStat
	filePressureCPU
	filePressureMemory
	filePressureIO
	fileMemoryHigh
	fileCount
)

func (l Layout) openGroup(path string) *group {
	g := &group{}
	openFile := func(file int, dir, name string) {
		if dir == "" {
			g.missing[file] = true
			return
		}

		g.files[file] = host.NewFile(filepath.Join(dir, path, name))
	}

	openFile(fileCPUStat, l.cpu, "cpu.stat")
	if l.Version == V2 {
		g.missing[fileCPUUsage] = true
		g.missing[filePeriod] = true
		openFile(fileQuota, l.cpu, "cpu.max")
		openFile(fileMemoryUsed, l.memory, "memory.current")
		openFile(fileMemoryHigh, l.memory, FileHigh)
	} else {
		openFile(fileCPUUsage, l.cpuacct, "cpuacct.usage")
		openFile(fileQuota, l.cpu, "cpu.cfs_quota_us")
		openFile(filePeriod, l.cpu, "cpu.cfs_period_us")
		openFile(fileMemoryUsed, l.memory, "memory.usage_in_bytes")
		g.missing[fileMemoryHigh] = true
	}

	openFile(fileMemoryStat, l.memory, "memory.stat")
	openFile(filePressureCPU, l.unified, "cpu.pressure")
	openFile(filePressureMemory, l.unified, "memory.pressure")
	openFile(filePressureIO, l.unified, "io.pressure")

	return g
}

func (g *group) close() {
	for i := range g.files {
		g.files[i].Close()
	}
}

// readParts reads the requested parts into s. Parts that fail are left out of s.Has; the first error other than host.ErrGone is returned.
func (g *group) readParts(r *host.Reader, version Version, want Part, s *Stat) error {
	*s = Stat{}
	var first error
	for _, part := range [...]struct {
		part Part
		read func(*group, *host.Reader, Version, *Stat) error
	}{{CPU, readCPU}, {Quota, readQuota}, {Memory, readMemory}, {Pressure, readPressure}, {High, readHigh}} {
		if want&part.part == 0 {
			continue
		}

		err := part.read(g, r, version, s)
		if err == nil {
			s.Has |= part.part
		} else if first == nil && !errors.Is(err, host.ErrGone) {
			first = err
		}
	}

	return first
}

func (g *group) readFile(r *host.Reader, file int) ([]byte, error) {
	if g.missing[file] {
		return nil, host.ErrGone
	}

	return r.Read(&g.files[file])
}

// LimitFiles returns the files of a group's quota and burst.
func (l Layout) LimitFiles(group string) (quota, burst string) {
	if l.Version == V2 {
		return filepath.Join(l.cpu, group, "cpu.max"), filepath.Join(l.cpu, group, "cpu.max.burst")
	}

	return filepath.Join(l.cpu, group, "cpu.cfs_quota_us"), filepath.Join(l.cpu, group, "cpu.cfs_burst_us")
}

// ReadLimit reads a group's quota and burst. The burst is 0 on kernels before 5.14. The error is host.ErrGone if the group is gone.
func (l Layout) ReadLimit(r *host.Reader, group string) (Bandwidth, time.Duration, error) {
	g := l.openGroup(group)
	defer g.close()

	var s Stat
	if err := readQuota(g, r, l.Version, &s); err != nil {
		return Bandwidth{}, 0, err
	}

	_, name := l.LimitFiles(group)
	content, err := r.ReadPath(name)
	if errors.Is(err, host.ErrGone) {
		return s.Limit, 0, nil
	}
	if err != nil {
		return Bandwidth{}, 0, err
	}

	burst, err := host.ParseSingle(content)
	if err != nil {
		return Bandwidth{}, 0, err
	}

	return s.Limit, toDuration(burst, time.Microsecond), nil
}

// ThreadsFile returns the path of the file that lists a group's threads by their IDs in the reader's PID namespace. It excludes threads
// of child groups.
func (l Layout) ThreadsFile(group string) string {
	if l.Version == V2 {
		return filepath.Join(l.unified, group, "cgroup.threads")
	}

	return filepath.Join(l.cpu, group, "tasks")
}

// PerfDir returns the directory of a group in the perf_event hierarchy: that of v1 if mounted, else the v2 tree, which needs no
// controller for it (Documentation/admin-guide/cgroup-v2.rst, perf_event). It returns an error if there is neither.
func (l Layout) PerfDir(group string) (string, error) {
	if !filepath.IsLocal(group) {
		return "", fmt.Errorf("group %.80q is not below the root", group)
	}

	root := l.unified
	if l.Version != V2 {
		if v1 := findV1Root(filepath.Dir(l.cpu), "perf_event"); v1 != "" {
			root = v1
		}
	}

	if root == "" {
		return "", fmt.Errorf("cgroup %s has no controller perf_event", l.Version)
	}

	return filepath.Join(root, group), nil
}
