// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// ZoneMemory is the memory of a NUMA node, for which the kernel reports no MemAvailable.
type ZoneMemory struct {
	Total, Free units.Bytes
	// PageCache is file-backed memory without shared memory, most of which can be reclaimed; 0 if not reported.
	PageCache units.Bytes
}

// Used returns the memory that is neither free nor page cache.
func (z ZoneMemory) Used() units.Bytes { return max(z.Total-z.Free-z.PageCache, 0) }

// ZonesDir is the directory of NUMA nodes below a Root.
const ZonesDir = "sys/devices/system/node"

// maxZone is the largest NUMA node number in Linux (CONFIG_NODES_SHIFT is at most 10).
const maxZone = 1023

// ListZones returns the numbers of the NUMA nodes in ascending order; none on kernels without NUMA.
func (r *Reader) ListZones(root Root) ([]int, error) {
	var ids []int
	err := r.Subdirectories(root.Path(ZonesDir), func(name []byte) {
		text, ok := strings.CutPrefix(string(name), "node")
		if id, err := strconv.Atoi(text); ok && err == nil && id >= 0 && id <= maxZone && strconv.Itoa(id) == text {
			ids = append(ids, id)
		}
	})
	if errors.Is(err, ErrGone) {
		err = nil
	}

	slices.Sort(ids)
	return ids, err
}

// ParseZoneMeminfo parses /sys/devices/system/node/nodeN/meminfo with lines such as "Node 0 MemTotal: 16384 kB".
func ParseZoneMeminfo(content []byte) (ZoneMemory, error) {
	// A missing key differs from an amount of 0.
	const unset = math.MaxUint64
	total := uint64(unset)
	free := uint64(unset)
	var files, shared uint64

	err := parseMeminfo(content, 2, func(key []byte) *uint64 {
		switch string(key) {
		case "MemTotal:":
			return &total
		case "MemFree:":
			return &free
		case "FilePages:":
			return &files
		case "Shmem:":
			return &shared
		}

		return nil
	})

	if err == nil && (total == unset || free == unset) {
		err = errors.New("missing MemTotal or MemFree")
	}

	if err != nil {
		return ZoneMemory{}, fmt.Errorf("meminfo: %w", err)
	}

	return ZoneMemory{Total: units.Bytes(total), Free: units.Bytes(min(free, total)), PageCache: units.Bytes(files - min(shared, files))}, nil
}

// ReadCPUs reads a file with a CPU list such as 0-3,8; an empty line is an empty set. The error is ErrGone for a missing file and
// ErrTruncated for an incomplete one.
func (r *Reader) ReadCPUs(path string) (numa.CPUSet, error) {
	content, err := r.ReadPath(path)
	if err != nil {
		return numa.CPUSet{}, err
	}

	var set numa.CPUSet
	err = Lines(content, func(line []byte) error {
		var parseErr error
		set, parseErr = numa.ParseCPUSet(string(line))
		return parseErr
	})
	if err != nil {
		return numa.CPUSet{}, fmt.Errorf("%s: %w", path, err)
	}

	return set, nil
}

// OnlineCPUs returns the online CPUs; an empty set is an error.
func (r *Reader) OnlineCPUs(root Root) (numa.CPUSet, error) {
	path := root.Path("sys/devices/system/cpu/online")
	set, err := r.ReadCPUs(path)
	if err == nil && set.Len() == 0 {
		err = fmt.Errorf("%s is empty", path)
	}

	if err != nil {
		return numa.CPUSet{}, fmt.Errorf("online CPUs are unknown: %w", err)
	}

	return set, nil
}
