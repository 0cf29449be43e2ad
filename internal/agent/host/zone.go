// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"math"

	"crane.io/crane/pkg/series"
)

// ZoneMemory is the memory of a NUMA node, for which the kernel reports no MemAvailable.
type ZoneMemory struct {
	Total, Free series.Bytes
	// PageCache is file-backed memory without shared memory, most of which can be reclaimed; 0 if not reported.
	PageCache series.Bytes
}

// Used returns the memory that is neither free nor page cache.
func (z ZoneMemory) Used() series.Bytes { return max(z.Total-z.Free-z.PageCache, 0) }

// ParseZoneMeminfo parses /sys/devices/system/node/nodeN/meminfo with lines such as "Node 0 MemTotal: 16384 kB".
func ParseZoneMeminfo(content []byte) (ZoneMemory, error) {
	const unset = math.MaxUint64
	total, free := uint64(unset), uint64(unset)
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
	return ZoneMemory{Total: series.Bytes(total), Free: series.Bytes(min(free, total)), PageCache: series.Bytes(files - min(shared, files))}, nil
}
