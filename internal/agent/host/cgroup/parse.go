// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/units"
)

// readCPU reads cpu.stat, and on v1 cpuacct.usage. v1 counts in nanoseconds, v2 in microseconds
// (Documentation/admin-guide/cgroup-v1/cpuacct.rst, Documentation/scheduler/sched-bwc.rst, cgroup-v2.rst).
func readCPU(g *group, r *host.Reader, v Version, s *Stat) error {
	content, err := g.readFile(r, fileCPUStat)
	if err != nil {
		return err
	}

	if err := parseCPUStat(content, v, s); err != nil {
		return fmt.Errorf("%s: %w", g.files[fileCPUStat].Path(), err)
	}

	if v == V2 {
		return nil
	}

	if content, err = g.readFile(r, fileCPUUsage); err != nil {
		return err
	}

	used, err := host.ParseSingle(content)
	if err != nil {
		return fmt.Errorf("%s: %w", g.files[fileCPUUsage].Path(), err)
	}

	s.CPUTime = toDuration(used, time.Nanosecond)
	return nil
}

func parseCPUStat(content []byte, v Version, s *Stat) error {
	used := v != V2
	err := host.ParseKeyValues(content, func(key []byte, n uint64) {
		switch string(key) {
		case "usage_usec":
			s.CPUTime = toDuration(n, time.Microsecond)
			used = true

		case "nr_periods":
			s.Periods = n
		case "nr_throttled":
			s.Throttled = n
		case "throttled_time":
			s.ThrottledTime = toDuration(n, time.Nanosecond)
		case "throttled_usec":
			s.ThrottledTime = toDuration(n, time.Microsecond)
		}
	}, "usage_usec", "nr_periods", "nr_throttled", "throttled_time", "throttled_usec")

	if err == nil && !used {
		err = errors.New("no usage_usec")
	}

	return err
}

// toDuration returns n units, at most the longest duration.
func toDuration(n uint64, unit time.Duration) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64/unit))) * unit
}

func readQuota(g *group, r *host.Reader, v Version, s *Stat) error {
	content, err := g.readFile(r, fileQuota)
	if err != nil {
		return err
	}

	if v == V2 {
		s.Limit, err = ParseCPUMax(content)
		return wrapFileError(g, fileQuota, err)
	}

	// v1 has quota and period in two files.
	quota, err := parseQuotaV1(content)
	if err != nil {
		return wrapFileError(g, fileQuota, err)
	}

	if content, err = g.readFile(r, filePeriod); err != nil {
		return err
	}

	period, err := host.ParseSingle(content)
	if err == nil && period == 0 {
		err = errors.New("period is 0")
	}

	s.Limit = Bandwidth{Quota: quota, Period: toDuration(period, time.Microsecond)}
	return wrapFileError(g, filePeriod, err)
}

func wrapFileError(g *group, file int, err error) error {
	if err == nil {
		return nil
	}

	return fmt.Errorf("%s: %w", g.files[file].Path(), err)
}

// parseQuotaV1 parses cpu.cfs_quota_us: microseconds, -1 for none.
func parseQuotaV1(content []byte) (time.Duration, error) {
	var quota time.Duration
	err := host.Lines(content, func(line []byte) error {
		n, err := host.Int(line)
		if n < 0 {
			quota = -1
		} else {
			quota = toDuration(uint64(n), time.Microsecond)
		}

		return err
	})

	return quota, err
}

// ParseCPUMax parses cpu.max of v2: "max 100000" or "50000 100000", in microseconds.
func ParseCPUMax(content []byte) (Bandwidth, error) {
	var b Bandwidth
	err := host.Lines(content, func(line []byte) error {
		quota, rest := host.Field(line)
		period, _ := host.Field(rest)
		p, err := host.Uint(period)
		if err != nil || p == 0 {
			return fmt.Errorf("period %.40q is not a positive number", period)
		}

		b = Bandwidth{Quota: -1, Period: toDuration(p, time.Microsecond)}
		if string(quota) == "max" {
			return nil
		}

		q, err := host.Uint(quota)
		b.Quota = toDuration(q, time.Microsecond)
		return err
	})

	return b, err
}

// readMemory reads the memory use. The working set is defined as in the kubelet: all memory without inactive files.
func readMemory(g *group, r *host.Reader, v Version, s *Stat) error {
	content, err := g.readFile(r, fileMemoryUsed)
	if err != nil {
		return err
	}

	used, err := host.ParseSingle(content)
	if err != nil {
		return wrapFileError(g, fileMemoryUsed, err)
	}

	if content, err = g.readFile(r, fileMemoryStat); err != nil {
		return err
	}

	inactive, err := parseMemoryStat(content, v, s)
	if err != nil {
		return wrapFileError(g, fileMemoryStat, err)
	}

	s.Used = toBytes(used)
	s.WorkingSet = toBytes(used - min(used, inactive))
	return nil
}

func parseMemoryStat(content []byte, v Version, s *Stat) (inactive uint64, err error) {
	// v1 keys without total_ exclude child groups.
	rss := "total_rss"

	cache := "total_cache"
	shared := "total_shmem"
	idle := "total_inactive_file"
	if v == V2 {
		rss = "anon"
		cache = "file"
		shared = "shmem"
		idle = "inactive_file"
	}

	seen := 0
	err = host.ParseKeyValues(content, func(key []byte, n uint64) {
		switch string(key) {
		case rss:
			s.RSS = toBytes(n)
		case cache:
			s.Cache = toBytes(n)

		case shared: // Linux before 4.15 does not report it on v1.
			s.Shared = toBytes(n)
			return
		case idle:
			inactive = n
		default:
			return
		}

		seen++
	}, rss, cache, shared, idle)

	if err == nil && seen < 3 {
		err = fmt.Errorf("requires %s, %s and %s", rss, cache, idle)
	}

	return inactive, err
}

// readHigh reads memory.high: bytes, or max.
func readHigh(g *group, r *host.Reader, _ Version, s *Stat) error {
	content, err := g.readFile(r, fileMemoryHigh)
	if err != nil {
		return err
	}

	if string(content) == "max\n" {
		s.High = math.MaxInt64
		return nil
	}

	n, err := host.ParseSingle(content)
	s.High = toBytes(n)
	return wrapFileError(g, fileMemoryHigh, err)
}

func toBytes(n uint64) units.Bytes { return units.Bytes(min(n, math.MaxInt64)) }

func readPressure(g *group, r *host.Reader, _ Version, s *Stat) error {
	for _, f := range [...]struct {
		file     int
		pressure *host.Pressure
	}{{filePressureCPU, &s.Stalled.CPU}, {filePressureMemory, &s.Stalled.Memory}, {filePressureIO, &s.Stalled.IO}} {
		content, err := g.readFile(r, f.file)
		// With psi=0 the files exist all the same.
		if host.IsUnsupported(err) {
			return host.ErrUnsupported
		}
		if err != nil {
			return err
		}

		if *f.pressure, err = host.ParsePressure(content); err != nil {
			return wrapFileError(g, f.file, err)
		}
	}

	return nil
}
