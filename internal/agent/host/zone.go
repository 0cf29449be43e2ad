// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

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
	var total, free, files, shared uint64
	seen := 0
	err := Lines(content, func(line []byte) error {
		_, rest := Field(line)
		_, rest = Field(rest)
		key, rest := Field(rest)
		var into *uint64
		switch string(key) {
		case "MemTotal:":
			into = &total
			seen++
		case "MemFree:":
			into = &free
			seen++
		case "FilePages:":
			into = &files
		case "Shmem:":
			into = &shared
		default:
			return nil
		}
		var err error
		*into, err = parseKiB(key, rest)
		return err
	})
	if err == nil && seen != 2 {
		err = errors.New("missing MemTotal or MemFree")
	}
	if err != nil {
		return ZoneMemory{}, fmt.Errorf("meminfo: %w", err)
	}
	return ZoneMemory{Total: series.Bytes(total), Free: series.Bytes(min(free, total)), PageCache: series.Bytes(files - min(shared, files))}, nil
}
