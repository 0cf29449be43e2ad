// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// FileWriter writes to files of the kernel.
type FileWriter interface {
	// Write writes a value to a file that is there; it makes none.
	Write(file, value string) error
}

// KernelFileWriter are the real ones.
type KernelFileWriter struct{}

// Write implements Files. The file is opened without O_CREATE: in a directory that is no cgroup a plain file would come to be. A kernel
// takes no notice of O_TRUNC; the plain files of a simulated host need it.
func (KernelFileWriter) Write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	return errors.Join(writeOnce(f, value+"\n"), f.Close())
}

// writeOnce writes and says what the kernel says. The runtime takes files of cgroups for such as can be waited for, and waits for ever where
// a kernel answers EAGAIN, as memory.reclaim does; it is asked to do no more than the call. A kernel is not called for a write of no bytes:
// an empty list of CPUs is an empty line.
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
