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

// Part is a set of the things that a group can tell.
type Part uint8

// The parts.
const (
	// CPU is the time used and throttled.
	CPU Part = 1 << iota
	// Quota is the limit of cpu.
	Quota
	// Memory is the memory used.
	Memory
	// Pressure is the time stalled for cpu, memory and disks.
	Pressure
	// High is v2's limit of memory that nobody is killed for.
	High
)

// Stat is what a group says. Parts that are not in Has could not be read and are zero: they are unknown, not nothing.
type Stat struct {
	Has Part
	// CPUTime is all that was used since the group was made.
	CPUTime time.Duration
	// Periods are those in which the group ran, Throttled those of them in which it used up its quota, ThrottledTime how long its
	// threads waited for the next.
	Periods, Throttled uint64
	ThrottledTime      time.Duration
	// Limit is the quota.
	Limit Bandwidth
	// Used is all memory, WorkingSet what cannot be had back at once (without inactive files), RSS that of processes, Cache that of
	// files.
	Used, WorkingSet, RSS, Cache series.Bytes
	// High is memory.high, math.MaxInt64 for none.
	High series.Bytes
	// Stalled is by resource.
	Stalled struct{ CPU, Memory, IO host.Pressure }
}

// Bandwidth is a limit of cpu: Quota in each Period. A Quota below 0 is none.
type Bandwidth struct {
	Quota, Period time.Duration
}

// Unlimited tells that there is no limit.
func (b Bandwidth) Unlimited() bool { return b.Quota < 0 || b.Period <= 0 }

// Cores is the limit in cores; it means nothing where Unlimited.
func (b Bandwidth) Cores() float64 { return float64(b.Quota) / float64(b.Period) }

// group is the open files of a cgroup.
type group struct {
	path    string
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
	g := &group{path: path}
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

// readParts fills s with the wanted parts. What cannot be read is left out of s.Has, and the first error, other than that of a file which
// is not there, is returned beside the parts that could.
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
