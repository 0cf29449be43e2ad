// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package firstseen records since when a state of objects has lasted.
package firstseen

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Tracker records the start of a state per object. The zero value is empty. It is safe for concurrent use. It holds one entry per
// object until Forget.
type Tracker struct {
	mu        sync.Mutex
	firstSeen map[types.NamespacedName]time.Time
}

// Since returns how long the state of an object has lasted; 0 if it starts now.
func (t *Tracker) Since(name types.NamespacedName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.firstSeen == nil {
		t.firstSeen = map[types.NamespacedName]time.Time{}
	}

	begun, ok := t.firstSeen[name]
	if !ok {
		t.firstSeen[name] = now
		begun = now
	}

	return now.Sub(begun)
}

// Forget records that the state of an object has ended, or that the object is gone.
func (t *Tracker) Forget(name types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.firstSeen, name)
}

// Len returns the number of objects in the state.
func (t *Tracker) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return len(t.firstSeen)
}
