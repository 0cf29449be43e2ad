// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"sync"
	"time"
)

// maxCachedOwners bounds the objects in an ownerCache, about 60 MiB. Owners beyond it are read again.
const maxCachedOwners = 300_000

// ownerCache caches the owners of objects by time range and namespaces. It is safe for concurrent use; a nil cache keeps nothing.
type ownerCache struct {
	mu      sync.Mutex
	objects int
	entries []ownerCacheEntry
}

type ownerCacheEntry struct {
	from, to time.Time
	scope    scope
	owners   *owners
}

// find returns the owners of a time range and scope that cover the given ones, or nil.
func (k *ownerCache) find(from, to time.Time, in scope) *owners {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.entries {
		if !e.from.After(from) && !e.to.Before(to) && e.scope.covers(in) {
			return e.owners
		}
	}
	return nil
}

// add caches the owners of a time range and scope, within the bound.
func (k *ownerCache) add(from, to time.Time, in scope, o *owners) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(o.pods) + len(o.nodes) + len(o.replicaSets) + len(o.jobs)
	if k.objects+n > maxCachedOwners {
		return
	}
	k.objects += n
	k.entries = append(k.entries, ownerCacheEntry{from, to, in, o})
}
