// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"sync"
	"time"
)

// maxEntries bounds a cache, which is cleared when full of live entries.
const maxEntries = 2048

// cache keeps values until they expire.
type cache[V any] struct {
	mu      sync.Mutex
	entries map[string]entry[V]
}

type entry[V any] struct {
	value   V
	expires time.Time
}

func newCache[V any]() *cache[V] { return &cache[V]{entries: map[string]entry[V]{}} }

func (c *cache[V]) get(key string, now time.Time) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok || now.After(e.expires) {
		var zero V
		return zero, false
	}
	return e.value, true
}

func (c *cache[V]) put(key string, value V, now time.Time, life time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= maxEntries {
		for k, e := range c.entries {
			if now.After(e.expires) {
				delete(c.entries, k)
			}
		}
		if len(c.entries) >= maxEntries {
			clear(c.entries)
		}
	}
	c.entries[key] = entry[V]{value, now.Add(life)}
}
