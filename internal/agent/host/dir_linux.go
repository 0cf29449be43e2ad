// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"
)

// Offsets in linux_dirent64 (getdents64(2)): inode and offset of 8 bytes each, length of 2, type of 1, zero-terminated name.
const (
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

// Subdirectories calls each with the name of every subdirectory, or link, in no particular order; the bytes are valid during the call. It
// allocates only on errors, since it runs every second on directories with hundreds of entries.
func (r *Reader) Subdirectories(path string, each func(name []byte)) error {
	fd, err := retryInterrupted(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	})
	if err != nil {
		return wrapFileError(path, err)
	}
	defer func() { _ = syscall.Close(fd) }()

	if r.buf == nil {
		r.buf = make([]byte, initialBufferBytes)
	}

	for {
		n, err := retryInterrupted(func() (int, error) { return syscall.ReadDirent(fd, r.buf) })
		if err != nil {
			return wrapFileError(path, err)
		}

		if n == 0 {
			return nil
		}

		if err := parseDirents(r.buf[:n], each); err != nil {
			return wrapFileError(path, err)
		}
	}
}

// Links returns the link count of a directory: two plus one for each subdirectory; less than two on file systems that do not count them,
// such as overlayfs.
func Links(path string) (uint64, error) {
	var st syscall.Stat_t
	if _, err := retryInterrupted(func() (int, error) { return 0, syscall.Stat(path, &st) }); err != nil {
		return 0, wrapFileError(path, err)
	}

	return uint64(st.Nlink), nil //nolint:unconvert // It is smaller on some processors.
}

func parseDirents(buf []byte, each func(name []byte)) error {
	for len(buf) > 0 {
		if len(buf) < direntName {
			return fmt.Errorf("directory entry of %d bytes is too short", len(buf))
		}

		length := int(binary.NativeEndian.Uint16(buf[direntLength:]))
		if length <= direntName || length > len(buf) {
			return fmt.Errorf("invalid directory entry of %d bytes", length)
		}

		name := buf[direntName:length]
		kind := buf[direntType]

		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}

		// /sys/block contains links to directories.
		if (kind == syscall.DT_DIR || kind == syscall.DT_LNK) && string(name) != "." && string(name) != ".." {
			each(name)
		}

		buf = buf[length:]
	}

	return nil
}
