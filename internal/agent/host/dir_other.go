// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import "os"

// Subdirectories calls each with the name of every subdirectory, or link.
func (r *Reader) Subdirectories(path string, each func(name []byte)) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return wrapFileError(path, err)
	}

	for _, e := range entries {
		if e.IsDir() || e.Type()&os.ModeSymlink != 0 {
			each([]byte(e.Name()))
		}
	}

	return nil
}

// Links returns 0: the number of subdirectories is unknown without listing them.
func Links(path string) (uint64, error) {
	if _, err := os.Stat(path); err != nil {
		return 0, wrapFileError(path, err)
	}

	return 0, nil
}
