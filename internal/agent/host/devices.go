// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// sectorBytes is the unit of /proc/diskstats, whatever the sector size of the disk (Documentation/admin-guide/iostats.rst).
const sectorBytes = 512

// Disk holds the counters of a block device since boot.
type Disk struct {
	Reads, Writes         uint64
	ReadBytes, WriteBytes uint64
	// Busy is the time with at least one request in progress.
	Busy time.Duration
}

// ParseDiskstats calls each for every device of /proc/diskstats, including partitions.
func ParseDiskstats(content []byte, each func(name []byte, d Disk)) error {
	if len(content) == 0 {
		return nil // no block device
	}
	err := Lines(content, func(line []byte) error {
		_, rest := Field(line)
		_, rest = Field(rest)
		name, rest := Field(rest)
		// reads, merged, sectors, ms, writes, merged, sectors, ms, in flight, ms busy
		var c [10]uint64
		if n, err := parseColumns(rest, c[:]); err != nil || n < len(c) {
			return errors.Join(err, fmt.Errorf("%.40q has fewer than ten counters", name))
		}
		each(name, Disk{
			Reads: c[0], Writes: c[4], ReadBytes: c[2] * sectorBytes, WriteBytes: c[6] * sectorBytes,
			Busy: time.Duration(min(c[9], 1<<40)) * time.Millisecond,
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("diskstats: %w", err)
	}
	return nil
}

// Interface holds the counters of a network interface.
type Interface struct {
	ReceivedBytes, SentBytes     uint64
	ReceivedPackets, SentPackets uint64
	DroppedIn, DroppedOut        uint64
}

// ParseNetDev calls each for every interface of /proc/PID/net/dev.
func ParseNetDev(content []byte, each func(name []byte, i Interface)) error {
	header := 2
	err := Lines(content, func(line []byte) error {
		if header > 0 {
			header--
			return nil
		}
		// A name may contain any byte except blanks and /; counters start after the last colon.
		colon := bytes.LastIndexByte(line, ':')
		if colon < 0 {
			return fmt.Errorf("%.40q has no colon", line)
		}
		name, _ := Field(line[:colon])
		// bytes packets errs drop fifo frame compressed multicast, bytes packets errs drop
		var c [12]uint64
		if n, err := parseColumns(line[colon+1:], c[:]); err != nil || n < len(c) {
			return errors.Join(err, fmt.Errorf("%.40q has fewer than twelve counters", name))
		}
		each(name, Interface{
			ReceivedBytes: c[0], ReceivedPackets: c[1], DroppedIn: c[3],
			SentBytes: c[8], SentPackets: c[9], DroppedOut: c[11],
		})
		return nil
	})
	if err == nil && header > 0 {
		err = errors.New("no header")
	}
	if err != nil {
		return fmt.Errorf("net/dev: %w", err)
	}
	return nil
}
