// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/adoption/targetindex"
)

// cacheLag is how long a cache may take to show what was written. Until then the same is not written again; after
// that somebody else must have changed it.
const cacheLag = 10 * time.Second

// recentWrites remembers what was last written on targets until the cache shows it, so that two looks at a target in quick
// succession write once. It holds one entry for each write under way.
type recentWrites struct {
	mu      sync.Mutex
	entries map[writeKey]recentWrite
}

// writeKey is an annotation of a target.
type writeKey struct {
	target     targetindex.Key
	annotation string
}

type recentWrite struct {
	target types.UID
	value  string
	at     time.Time
}

// record remembers a write.
func (w *recentWrites) record(key writeKey, target types.UID, value string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries == nil {
		w.entries = map[writeKey]recentWrite{}
	}
	w.entries[key] = recentWrite{target: target, value: value, at: now}
}

// wait returns how long to wait for the cache to show the value; 0 where it was not written, or too long ago.
func (w *recentWrites) wait(key writeKey, target types.UID, value string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, found := w.entries[key]
	if !found || e.target != target || e.value != value {
		return 0
	}
	return max(0, e.at.Add(cacheLag).Sub(now))
}

// forget drops an entry: the cache shows the value, or the target is gone.
func (w *recentWrites) forget(key writeKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.entries, key)
}
