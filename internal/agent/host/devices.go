// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
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

// ParseDiskstats calls each for every device of /proc/diskstats, including partitions. Bad rows are skipped unless all are.
func ParseDiskstats(content []byte, each func(name []byte, d Disk)) error {
	if len(content) == 0 {
		return nil // no block device
	}

	var rows rowErrors
	err := Lines(content, func(line []byte) error {
		_, rest := Field(line)
		_, rest = Field(rest)
		name, rest := Field(rest)

		// reads, merged, sectors, ms, writes, merged, sectors, ms, in flight, ms busy
		var c [10]uint64
		if n, err := parseColumns(rest, c[:]); err != nil || n < len(c) {
			rows.add(errors.Join(err, fmt.Errorf("%.40q has fewer than ten counters", name)))
			return nil
		}

		rows.add(nil)

		each(name, Disk{
			Reads:      c[0],
			Writes:     c[4],
			ReadBytes:  c[2] * sectorBytes,
			WriteBytes: c[6] * sectorBytes,
			Busy:       time.Duration(min(c[9], 1<<40)) * time.Millisecond,
		})

		return nil
	})
	if err = errors.Join(err, rows.err()); err != nil {
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

// ParseNetDev calls each for every interface of /proc/PID/net/dev. Bad rows are skipped unless all are.
func ParseNetDev(content []byte, each func(name []byte, i Interface)) error {
	header := 2
	var rows rowErrors
	err := Lines(content, func(line []byte) error {
		if header > 0 {
			header--
			return nil
		}

		// A name may contain any byte except blanks and /; counters start after the last colon.
		colon := bytes.LastIndexByte(line, ':')
		if colon < 0 {
			rows.add(fmt.Errorf("%.40q has no colon", line))
			return nil
		}

		name, _ := Field(line[:colon])
		// bytes packets errs drop fifo frame compressed multicast, bytes packets errs drop
		var c [12]uint64
		if n, err := parseColumns(line[colon+1:], c[:]); err != nil || n < len(c) {
			rows.add(errors.Join(err, fmt.Errorf("%.40q has fewer than twelve counters", name)))
			return nil
		}

		rows.add(nil)

		each(name, Interface{
			ReceivedBytes:   c[0],
			ReceivedPackets: c[1],
			DroppedIn:       c[3],
			SentBytes:       c[8],
			SentPackets:     c[9],
			DroppedOut:      c[11],
		})

		return nil
	})

	err = errors.Join(err, rows.err())
	if err == nil && header > 0 {
		err = errors.New("no header")
	}

	if err != nil {
		return fmt.Errorf("net/dev: %w", err)
	}

	return nil
}

// MaxKubeletFileBytes limits the size of a kubelet file; real ones have some KiB.
const MaxKubeletFileBytes = 1 << 20

// ReadKubeletFile reads a file of the kubelet. It returns fs.ErrNotExist for a missing file, and an error for one that is not regular or
// larger than MaxKubeletFileBytes.
func ReadKubeletFile(root Root, parts ...string) ([]byte, error) {
	return ReadRegularFile(root.Path(parts...), MaxKubeletFileBytes)
}

// ReadRegularFile reads a regular file of at most maxBytes. It returns fs.ErrNotExist for a missing file.
func ReadRegularFile(path string, maxBytes int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}

	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxBytes)
	}

	return os.ReadFile(path)
}

// ReadKubeletPolicy returns the policy in a state file of the kubelet such as cpu_manager_state, in lower case; empty if the file names
// none.
func ReadKubeletPolicy(root Root, dir, file string) (string, error) {
	content, err := ReadKubeletFile(root, dir, file)
	if err != nil {
		return "", err
	}

	var state struct {
		PolicyName string `json:"policyName"`
	}

	if err := json.Unmarshal(content, &state); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}

	return strings.ToLower(state.PolicyName), nil
}
