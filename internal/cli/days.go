// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/metrics/profile"
)

// cacheFlags say where the days of the past are kept between runs.
type cacheFlags struct {
	dir string
	off bool
}

func (c *cacheFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.dir, "cache-dir", "", "directory that keeps finished days of history for the next run (default: crane in the user's cache directory)")
	fs.BoolVar(&c.off, "no-cache", false, "read all of the history anew and keep nothing")
}

// open returns nil where nothing is to be kept, or where there is no place for it.
func (c *cacheFlags) open(note func(string)) *profile.Cache {
	if c.off {
		return nil
	}
	dir := c.dir
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			note(fmt.Sprintf("nothing is kept for the next run: %v; --cache-dir says where", err))
			return nil
		}
		dir = filepath.Join(base, "crane")
	}
	return &profile.Cache{
		Dir: dir, MaxAge: profile.DefaultCacheAge, MaxBytes: profile.DefaultCacheBytes, Now: time.Now, Warn: note,
	}
}
