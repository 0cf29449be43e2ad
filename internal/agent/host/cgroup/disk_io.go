// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"crane.io/crane/internal/agent/host"
)

// DiskIO holds the disk reads and writes of a group since its creation.
type DiskIO struct {
	Reads, Writes         uint64
	ReadBytes, WriteBytes uint64
}

// DeviceKind classifies a block device for the accounting of disk I/O.
type DeviceKind int

// Kinds of block devices. I/O to a device that consists of others, such as an LVM volume, is counted for it and for those others.
const (
	// WholeDisk is a physical disk.
	WholeDisk DeviceKind = iota
	// StackedDevice consists of other devices and is not part of one.
	StackedDevice
	// IntermediateDevice is part of another device, or forwards writes to one, such as a loop device. It is not counted.
	IntermediateDevice
)

// DiskIOFiles reads the disk I/O of groups (Documentation/admin-guide/cgroup-v2.rst, io.stat; cgroup-v1/blkio-controller.rst,
// blkio.throttle.io_service_bytes and io_serviced).
type DiskIOFiles struct {
	root    string
	version Version
	// suffix selects the v1 files that include child groups; empty on kernels without them.
	suffix string
}

// DiskIOFiles returns a reader of disk I/O, or the reason why the host counts none.
func (l Layout) DiskIOFiles() (DiskIOFiles, error) {
	f := DiskIOFiles{root: l.unified, version: l.Version}
	if l.Version == V2 {
		if why := l.MissingReason("io"); why != "" {
			return f, errors.New(why)
		}

		return f, nil
	}

	if f.root = findV1Root(filepath.Dir(l.cpu), "blkio"); f.root == "" {
		return f, fmt.Errorf("cgroup %s has no controller blkio", l.Version)
	}

	if suffix := "_recursive"; pathExists(filepath.Join(f.root, fileServiceBytes+suffix)) {
		f.suffix = suffix
	}

	// Linux 6.10 and later count only for disks with a limit and report zero for all others.
	content, err := os.ReadFile(filepath.Join(f.root, fileServiceBytes+f.suffix))
	if err != nil {
		return f, fmt.Errorf("cgroup %s does not count disk I/O: %w", l.Version, err)
	}

	if !bytes.Contains(content, []byte(":")) {
		return f, fmt.Errorf("cgroup %s counts no disk I/O: Linux 6.10 and later count only for disks with a limit", l.Version)
	}

	return f, nil
}

const (
	fileIOStat       = "io.stat"
	fileServiceBytes = "blkio.throttle.io_service_bytes"
	fileServiced     = "blkio.throttle.io_serviced"
)

// Read returns the disk I/O of a pod. kind classifies a device by its number, such as 8:0. The error is host.ErrGone if the pod is gone
// or nothing is counted, and ErrIncomplete, with the I/O of all others, if that of a device is missing.
func (f DiskIOFiles) Read(r *host.Reader, p *PodGroup, kind func(device []byte) DeviceKind) (DiskIO, error) {
	sum, err := f.readGroup(r, p.Path, kind)
	if err != nil {
		return DiskIO{}, err
	}

	if f.version == V2 || f.suffix != "" {
		return sum.result()
	}

	for _, c := range p.Containers {
		more, err := f.readGroup(r, c.Path, kind)
		if err != nil {
			return DiskIO{}, err
		}

		sum.disks.add(more.disks)
		sum.stacked.add(more.stacked)
		sum.incomplete = sum.incomplete || more.incomplete
	}

	return sum.result()
}

// diskIOByKind sums disk I/O by kind of device.
type diskIOByKind struct {
	disks, stacked DiskIO
	// incomplete means that a row of a device could not be read.
	incomplete bool
}

// ErrIncomplete reports disk I/O without that of a device whose row could not be read.
var ErrIncomplete = errors.New("the I/O of a device is missing")

// result returns the sum, with ErrIncomplete if a device is missing.
func (s diskIOByKind) result() (DiskIO, error) {
	if s.incomplete {
		return s.total(), ErrIncomplete
	}

	return s.total(), nil
}

// total returns the larger of both kinds: I/O to a stacked device is counted again below it, but there not always for the pod; the
// threads of RAID 5 write for it.
func (s diskIOByKind) total() DiskIO {
	return DiskIO{
		Reads:      max(s.disks.Reads, s.stacked.Reads),
		Writes:     max(s.disks.Writes, s.stacked.Writes),
		ReadBytes:  max(s.disks.ReadBytes, s.stacked.ReadBytes),
		WriteBytes: max(s.disks.WriteBytes, s.stacked.WriteBytes),
	}
}

// counters returns the sum for a kind of device; nil for kinds that are not counted.
func (s *diskIOByKind) counters(d DeviceKind) *DiskIO {
	switch d {
	case WholeDisk:
		return &s.disks
	case StackedDevice:
		return &s.stacked
	case IntermediateDevice:
	}

	return nil
}

func (d *DiskIO) add(o DiskIO) {
	d.Reads = addSaturating(d.Reads, o.Reads)
	d.Writes = addSaturating(d.Writes, o.Writes)
	d.ReadBytes = addSaturating(d.ReadBytes, o.ReadBytes)
	d.WriteBytes = addSaturating(d.WriteBytes, o.WriteBytes)
}

// addSaturating adds without overflow.
func addSaturating(a, b uint64) uint64 { return a + min(b, math.MaxUint64-a) }

// readGroup reads the files of one group. They are read rarely and do not stay open.
func (f DiskIOFiles) readGroup(r *host.Reader, group string, kind func([]byte) DeviceKind) (diskIOByKind, error) {
	var s diskIOByKind
	var err error
	read := func(name string, parse func([]byte) error) {
		if err != nil {
			return
		}

		file := host.NewFile(filepath.Join(f.root, group, name))
		defer file.Close()

		var content []byte
		if content, err = r.Read(&file); err != nil {
			return
		}

		if err = parse(content); err != nil {
			err = fmt.Errorf("%s: %w", file.Path(), err)
		}
	}

	if f.version == V2 {
		read(fileIOStat, func(content []byte) error { return parseIOStat(content, kind, &s) })
		return s, err
	}

	// v1 counts bytes and operations in two files.
	read(fileServiceBytes+f.suffix, func(content []byte) error {
		return parseServiced(content, kind, &s, func(t *DiskIO) (reads, writes *uint64) { return &t.ReadBytes, &t.WriteBytes })
	})
	read(fileServiced+f.suffix, func(content []byte) error {
		return parseServiced(content, kind, &s, func(t *DiskIO) (reads, writes *uint64) { return &t.Reads, &t.Writes })
	})

	return s, err
}

// parseIOStat parses io.stat with lines such as "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0". Discards transfer no data and
// are ignored. The file of a group without I/O is empty. Kernels print the number of a device without statistics, without a newline, in front
// of the next line or at the end.
func parseIOStat(content []byte, kind func([]byte) DeviceKind, s *diskIOByKind) error {
	return s.parseRows(content, func(line []byte) (device []byte, err error) {
		field, rest := host.Field(line)
		for checkDeviceNumber(field) == nil {
			device = field
			field, rest = host.Field(rest)
		}

		switch {
		case len(field) == 0 && device != nil:
			return nil, nil
		case device == nil:
			return nil, checkDeviceNumber(field)
		}

		var t DiskIO
		for ; len(field) > 0; field, rest = host.Field(rest) {
			key, value, _ := bytes.Cut(field, []byte("="))
			var counter *uint64
			switch string(key) {
			case "rbytes":
				counter = &t.ReadBytes
			case "wbytes":
				counter = &t.WriteBytes
			case "rios":
				counter = &t.Reads
			case "wios":
				counter = &t.Writes
			default:
				continue // key of another controller
			}

			if *counter, err = host.Uint(value); err != nil {
				return device, fmt.Errorf("%s: %w", key, err)
			}
		}

		if sum := s.counters(kind(device)); sum != nil {
			sum.add(t)
		}

		return device, nil
	})
}

// parseServiced parses a v1 file with lines such as "8:0 Read 4096" and a final "Total 4096".
func parseServiced(content []byte, kind func([]byte) DeviceKind, s *diskIOByKind, counters func(*DiskIO) (reads, writes *uint64)) error {
	return s.parseRows(content, func(line []byte) (device []byte, err error) {
		field, rest := host.Field(line)
		if string(field) == "Total" {
			return nil, nil
		}

		if err := checkDeviceNumber(field); err != nil {
			return nil, err
		}

		device = field
		what, rest := host.Field(rest)
		number, _ := host.Field(rest)
		n, err := host.Uint(number)
		if err != nil {
			return device, fmt.Errorf("%.40s: %w", what, err)
		}

		sum := s.counters(kind(device))
		if sum == nil {
			return device, nil
		}

		switch reads, writes := counters(sum); string(what) {
		case "Read":
			*reads = addSaturating(*reads, n)
		case "Write":
			*writes = addSaturating(*writes, n)
		}

		return device, nil // Sync, Async and Total count the same I/O again.
	})
}

// parseRows calls parse for each line of a file; it returns the device of a row with statistics. A bad row is discarded, and noted if it
// belongs to a known device; the error is that of the first one if no row is good. Rows of devices that are gone have no number.
func (s *diskIOByKind) parseRows(content []byte, parse func(line []byte) (device []byte, err error)) error {
	good := 0
	var first error
	for len(content) > 0 {
		line, rest, complete := bytes.Cut(content, []byte("\n"))
		content = rest
		before := *s

		device, err := parse(line)
		switch {
		case err != nil || complete:
		case device != nil:
			*s = before // The last number may be incomplete.
			err = host.ErrTruncated
		case len(bytes.TrimSpace(line)) == 0 || line[0] == 'T': // Only the number of a device may end a file without a newline.
			err = host.ErrTruncated
		}

		if err == nil || bytes.HasPrefix(line, []byte("(unknown)")) {
			good++
			continue
		}

		s.incomplete = s.incomplete || device != nil
		if first == nil {
			first = err
		}
	}

	if good > 0 || first == nil {
		return nil
	}

	return fmt.Errorf("transfers: %w", first)
}

// checkDeviceNumber returns an error for an invalid device number.
func checkDeviceNumber(device []byte) error {
	major, minor, ok := bytes.Cut(device, []byte(":"))
	if !ok {
		return fmt.Errorf("device %.40q is not major:minor", device)
	}

	_, err := host.Uint(major)
	if err == nil {
		_, err = host.Uint(minor)
	}

	if err != nil {
		return fmt.Errorf("device %.40q: %w", device, err)
	}

	return nil
}
