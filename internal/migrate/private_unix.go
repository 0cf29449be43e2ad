// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package migrate

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkPrivate returns an error for a file that others may read or write, or that is not the user's: root may read those of everybody.
func checkPrivate(info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("others may read or write it (mode %#o); if its content is yours, run chmod 600", mode)
	}

	stat, ok := info.Sys().(*syscall.Stat_t)
	if user := os.Geteuid(); ok && int(stat.Uid) != user {
		return fmt.Errorf("it is of user %d, not of yours (%d); if its content is yours, run chown", stat.Uid, user)
	}

	return nil
}
