// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"path/filepath"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/series"
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
	Used, WorkingSet, RSS, Cache, Shared series.Bytes
	// High is memory.high, math.MaxInt64 for none.
	High    series.Bytes
	Stalled struct{ CPU, Memory, IO host.Pressure }
}

// Bandwidth is a CPU limit of Quota per Period. A negative Quota means unlimited.
type Bandwidth struct {
	Quota, Period time.Duration
}

// Unlimited reports whether there is no limit.
func (b Bandwidth) Unlimited() bool { return b.Quota < 0 || b.Period <= 0 }

// Cores returns the limit in cores. It is undefined if Unlimited.
func (b Bandwidth) Cores() float64 { return float64(b.Quota) / float64(b.Period) }

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
	at := func(file int, dir, name string) {
		if dir == "" {
			g.missing[file] = true
			return
		}
		g.files[file] = host.NewFile(filepath.Join(dir, path, name))
	}
	at(fileCPUStat, l.cpu, "cpu.stat")
	if l.Version == V2 {
		g.missing[fileCPUUsage], g.missing[filePeriod] = true, true
		at(fileQuota, l.cpu, "cpu.max")
		at(fileMemoryUsed, l.memory, "memory.current")
		at(fileMemoryHigh, l.memory, FileHigh)
	} else {
		at(fileCPUUsage, l.cpuacct, "cpuacct.usage")
		at(fileQuota, l.cpu, "cpu.cfs_quota_us")
		at(filePeriod, l.cpu, "cpu.cfs_period_us")
		at(fileMemoryUsed, l.memory, "memory.usage_in_bytes")
		g.missing[fileMemoryHigh] = true
	}
	at(fileMemoryStat, l.memory, "memory.stat")
	at(filePressureCPU, l.unified, "cpu.pressure")
	at(filePressureMemory, l.unified, "memory.pressure")
	at(filePressureIO, l.unified, "io.pressure")
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
