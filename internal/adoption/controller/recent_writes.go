// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/adoption/targetindex"
)

// cacheLag is how long a cache may take to show a write. The same value is not written again earlier; afterward another client
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
func (r *recentWrites) record(key writeKey, target types.UID, value string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.entries == nil {
		r.entries = map[writeKey]recentWrite{}
	}
	r.entries[key] = recentWrite{target: target, value: value, at: now}
}

// wait returns how long to wait for the cache to show the value; 0 if it was not written, or too long ago.
func (r *recentWrites) wait(key writeKey, target types.UID, value string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()

	e, found := r.entries[key]
	if !found || e.target != target || e.value != value {
		return 0
	}

	return max(0, e.at.Add(cacheLag).Sub(now))
}

// forget removes a write that the cache shows.
func (r *recentWrites) forget(key writeKey) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.entries, key)
}
