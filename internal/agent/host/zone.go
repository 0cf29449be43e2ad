// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"crane.io/crane/pkg/series"
)

// ZoneMemory is the memory of a NUMA node. The kernel does not say of one what is available, as it does of all.
type ZoneMemory struct {
	Total, Free series.Bytes
	// PageCache is the memory of files that were read or written, without what is shared: most of it can be had back. 0 where it is not told.
	PageCache series.Bytes
}

// Used is what is neither free nor of files.
func (z ZoneMemory) Used() series.Bytes { return max(z.Total-z.Free-z.PageCache, 0) }

// ParseZoneMeminfo reads /sys/devices/system/node/nodeN/meminfo, whose lines are "Node 0 MemTotal: 16384 kB".
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
		err = errors.New("no MemTotal or no MemFree")
	}
	if err != nil {
		return ZoneMemory{}, fmt.Errorf("meminfo: %w", err)
	}
	return ZoneMemory{Total: series.Bytes(total), Free: series.Bytes(min(free, total)), PageCache: series.Bytes(files - min(shared, files))}, nil
}
