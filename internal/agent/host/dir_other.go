// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import "os"

// Subdirectories calls each with the name of every directory, or link, directly in a directory.
func (r *Reader) Subdirectories(path string, each func(name []byte)) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fileError(path, err)
	}
	for _, e := range entries {
		if e.IsDir() || e.Type()&os.ModeSymlink != 0 {
			each([]byte(e.Name()))
		}
	}
	return nil
}
