// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// disk is the device number of the machine's only disk, operation the bytes per operation.
	disk      = "254:0"
	operation = 64 << 10
)

// servedFiles returns the v1 files with disk statistics of a group: bytes and operations, without and with the groups
// below it.
func servedFiles() [4]string {
	const stem = "blkio.throttle."
	return [...]string{stem + "io_service_bytes", stem + "io_serviced", stem + "io_service_bytes_recursive", stem + "io_serviced_recursive"}
}

// diskRules count the transfers of groups.
type diskRules struct{ hierarchy }

// newDisks returns the disk statistics files of a new group.
func (r diskRules) newDisks() map[string]string {
	if !r.V1 {
		return map[string]string{"io.stat": ""}
	}

	files := map[string]string{}
	for _, name := range servedFiles() {
		files[name] = "Total 0\n"
	}

	return files
}

// transferred is disk I/O in bytes.
type transferred struct{ read, written int64 }

// stat returns a line of io.stat.
func (d transferred) stat() string {
	return fmt.Sprintf(disk+" rbytes=%d wbytes=%d rios=%d wios=%d dbytes=0 dios=0\n", d.read, d.written, d.read/operation, d.written/operation)
}

// served returns the content of a v1 file, in bytes or in operations.
func (d transferred) served(unit int64) string {
	sum := d.read/unit + d.written/unit
	return fmt.Sprintf("%[1]s Read %[2]d\n%[1]s Write %[3]d\n%[1]s Sync %[4]d\n%[1]s Async 0\n%[1]s Discard 0\n%[1]s Total %[4]d\nTotal %[4]d\n", disk, d.read/unit, d.written/unit, sum)
}

// transferDemand returns the disk I/O that loads want, in bytes per second.
func transferDemand(loads []Load) (wanted float64) {
	for _, l := range loads {
		wanted += max(l.Read, 0) + max(l.Written, 0)
	}

	return wanted
}

// transfer performs a share, 0 to 1, of the reads and writes of loads, which wait for the rest. It returns the share of time waited.
func (r diskRules) transfer(loads []Load, got []Use, span time.Duration, share float64) (waited float64, err error) {
	shares := stalls{}
	for i, l := range loads {
		g := &got[i]
		g.Read = share * max(l.Read, 0)
		g.Written = share * max(l.Written, 0)

		stalled := 0.0
		if g.Read+g.Written > 0 {
			stalled = 1 - share
			waited = max(waited, stalled)

			bytes := transferred{int64(g.Read * span.Seconds()), int64(g.Written * span.Seconds())}
			if err := r.countTransfer(l.Group, bytes); err != nil {
				return 0, err
			}
		}

		r.memory().addStall(shares, l.Group, stalled)
	}

	// Version 1 has no pressure files.
	if r.V1 {
		return waited, nil
	}

	for dir, s := range shares {
		if err := addPressure(filepath.Join(dir, "io.pressure"), s.some, s.full, span); err != nil {
			return 0, err
		}
	}

	return waited, nil
}

// countTransfer counts I/O in a group and its ancestors; v1 includes the root.
func (r diskRules) countTransfer(group string, transfers transferred) error {
	root := r.root("blkio")
	leaf := filepath.Join(root, group)
	for dir := leaf; strings.HasPrefix(dir, root+"/") || r.V1 && dir == root; dir = filepath.Dir(dir) {
		if !r.V1 {
			now, err := readTransferred(filepath.Join(dir, "io.stat"), disk+" rbytes=%d wbytes=%d")
			if err != nil {
				return err
			}

			if err := writeFile(filepath.Join(dir, "io.stat"), now.plus(transfers).stat()); err != nil {
				return err
			}

			continue
		}

		for i, name := range servedFiles() {
			// The first pair of files counts the group alone, the second includes the groups below.
			if below := i >= 2; dir != leaf && !below {
				continue
			}

			unit := int64(1)
			if i%2 == 1 {
				unit = operation
			}

			bytes, err := readTransferred(filepath.Join(dir, servedFiles()[i-i%2]), disk+" Read %d\n"+disk+" Write %d")
			if err != nil {
				return err
			}

			if unit == 1 {
				bytes = bytes.plus(transfers) // operations are derived from the bytes counted before
			}

			if err := writeFile(filepath.Join(dir, name), bytes.served(unit)); err != nil {
				return err
			}
		}
	}

	return nil
}

func (d transferred) plus(o transferred) transferred {
	return transferred{d.read + o.read, d.written + o.written}
}

// readTransferred reads a statistics file, which may be empty.
func readTransferred(file, format string) (d transferred, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return d, fmt.Errorf("reading transfers: %w", err)
	}

	if !strings.HasPrefix(string(content), disk) {
		return d, nil
	}

	if _, err := fmt.Sscanf(string(content), format, &d.read, &d.written); err != nil {
		return d, errors.Join(fmt.Errorf("parsing transfers of %s: unexpected content", file), err)
	}

	return d, nil
}
