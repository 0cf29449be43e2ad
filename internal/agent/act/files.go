// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// FileWriter writes kernel files.
type FileWriter interface {
	// Write writes a value to an existing file; it never creates one.
	Write(file, value string) error
}

// KernelFileWriter writes real kernel files.
type KernelFileWriter struct{}

// Write implements FileWriter. The file is opened without O_CREATE, which would create a plain file outside a cgroup. The kernel ignores
// O_TRUNC; the plain files of a simulated host need it.
func (KernelFileWriter) Write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	return errors.Join(writeOnce(f, value+"\n"), f.Close())
}

// writeOnce writes with a single system call and returns its error. The Go runtime treats cgroup files as pollable and would wait forever
// when the kernel returns EAGAIN, as memory.reclaim does. Zero bytes are not written at all, so an empty CPU list is written as an empty
// line.
func writeOnce(f *os.File, text string) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	var said error
	err = conn.Write(func(fd uintptr) (done bool) {
		for said = syscall.EINTR; errors.Is(said, syscall.EINTR); {
			_, said = syscall.Write(int(fd), []byte(text))
		}
		return true
	})
	if said != nil {
		return &os.PathError{Op: "write", Path: f.Name(), Err: said}
	}
	return err
}
