// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/adoption/targetindex"
)

// cacheLag is how long a cache may take to show a write. The same value is not written again earlier; afterwards another client
// must have changed it.
const cacheLag = 10 * time.Second

// recentWrites records the last write to each target until the cache shows it, so that two reconciliations in quick succession
// write once.
type recentWrites struct {
	mu      sync.Mutex
	entries map[writeKey]recentWrite
}

// writeKey identifies an annotation of a target.
type writeKey struct {
	target     targetindex.Key
	annotation string
}

type recentWrite struct {
	target types.UID
	value  string
	at     time.Time
}

// record stores a write.
func (w *recentWrites) record(key writeKey, target types.UID, value string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.entries == nil {
		w.entries = map[writeKey]recentWrite{}
	}
	w.entries[key] = recentWrite{target: target, value: value, at: now}
}

// wait returns how long to wait for the cache to show the value; 0 if it was not written, or too long ago.
func (w *recentWrites) wait(key writeKey, target types.UID, value string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()

	e, found := w.entries[key]
	if !found || e.target != target || e.value != value {
		return 0
	}

	return max(0, e.at.Add(cacheLag).Sub(now))
}

// forget removes a write that the cache shows.
func (w *recentWrites) forget(key writeKey) {
	w.mu.Lock()
	defer w.mu.Unlock()

	delete(w.entries, key)
}
