// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"os"
)

// Files writes to files of the kernel.
type Files interface {
	// Write writes a value to a file that is there; it makes none.
	Write(file, value string) error
}

// KernelFiles are the real ones.
type KernelFiles struct{}

// Write implements Files. The file is opened without O_CREATE: in a directory that is no cgroup a plain file would come to be. A kernel
// takes no notice of O_TRUNC; the plain files of a simulated host need it.
func (KernelFiles) Write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err //nolint:wrapcheck // The error names the file.
	}
	// A kernel is not called for a write of no bytes: an empty list of CPUs is an empty line.
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}
