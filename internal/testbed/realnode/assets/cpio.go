// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"bytes"
	"fmt"
)

// cpio is an archive in the "newc" format of the Linux kernel's initial file system
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpio struct {
	content bytes.Buffer
	entries int
}

// Modes as in stat(2).
const (
	cpioDir    = 0o040755
	cpioFile   = 0o100755
	cpioDevice = 0o020600 // of characters
)

// device is a device number.
type device struct{ major, minor int }

func (c *cpio) dir(name string) { c.add(name, cpioDir, device{}, nil) }

func (c *cpio) file(name string, content []byte) { c.add(name, cpioFile, device{}, content) }

func (c *cpio) device(name string, d device) { c.add(name, cpioDevice, d, nil) }

func (c *cpio) add(name string, mode int, d device, content []byte) {
	c.entries++
	// magic, inode, mode, uid, gid, links, mtime, size, device, of the device, name's length, check
	fmt.Fprintf(&c.content, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.entries, mode, 0, 0, 1, 0, len(content), 0, 0, d.major, d.minor, len(name)+1, 0, name)
	c.pad()
	c.content.Write(content)
	c.pad()
}

// pad adds zero bytes up to a multiple of four.
func (c *cpio) pad() {
	for c.content.Len()%4 != 0 {
		c.content.WriteByte(0)
	}
}

// bytes completes and returns the archive.
func (c *cpio) bytes() []byte {
	c.add("TRAILER!!!", 0, device{}, nil)
	return c.content.Bytes()
}
