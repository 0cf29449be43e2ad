// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"crane.io/crane/internal/metrics/profile"
)

// cacheFlags configure the cache of finished days of history.
type cacheFlags struct {
	dir string
	off bool
}

// open returns the cache, or nil if caching is disabled or no cache directory is available.
func (c *cacheFlags) open(note func(string)) *profile.Cache {
	if c.off {
		return nil
	}

	dir := c.dir
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			note(fmt.Sprintf("history is not cached: %v; set --cache-dir", err))
			return nil
		}

		dir = filepath.Join(base, "crane")
	}

	return &profile.Cache{
		Dir:      dir,
		MaxAge:   profile.DefaultCacheAge,
		MaxBytes: profile.DefaultCacheBytes,
		Now:      time.Now,
		Warn:     note,
	}
}
