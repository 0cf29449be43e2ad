// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// swapFile is the path of a virtual machine's swap file.
const swapFile = "/var/swap"

// swapOn creates and enables swap of that size in MiB; 0 does nothing.
func swapOn(mib int) error {
	if mib == 0 {
		return nil
	}
	f, err := os.OpenFile(swapFile, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	size := int64(mib) << 20
	_, err = f.WriteAt(swapHeader(size, os.Getpagesize()), 0)
	if err := errors.Join(err, unix.Fallocate(int(f.Fd()), 0, 0, size), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	path, err := unix.BytePtrFromString(swapFile)
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(path)), 0, 0); errno != 0 {
		return fmt.Errorf("swap on: %w", errno)
	}
	return nil
}

// swapHeader returns the first page of a swap area, as mkswap(8) writes it: the kernel's union swap_header, version 1.
func swapHeader(size int64, page int) []byte {
	const info, magic = 1024, "SWAPSPACE2"
	b := make([]byte, page)
	binary.NativeEndian.PutUint32(b[info:], 1)
	binary.NativeEndian.PutUint32(b[info+4:], uint32(size/int64(page)-1))
	copy(b[page-len(magic):], magic)
	return b
}
