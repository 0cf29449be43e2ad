// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// CacheConfig configure the cache of finished days of history.
type CacheConfig struct {
	Dir string
	Off bool
}

// Open returns the cache, or nil if caching is disabled or no cache directory is available.
func (c *CacheConfig) Open(note func(string)) *Cache {
	if c.Off {
		return nil
	}

	dir := c.Dir
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			note(fmt.Sprintf("history is not cached: %v; set --cache-dir", err))
			return nil
		}

		dir = filepath.Join(base, "crane")
	}

	return &Cache{
		Dir:      dir,
		MaxAge:   DefaultCacheAge,
		MaxBytes: DefaultCacheBytes,
		Now:      time.Now,
		Warn:     note,
	}
}
