// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package firstseen remembers since when something has been so with objects.
package firstseen

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Tracker are the times at which something began. The zero value knows none. It is safe for use by several goroutines. It holds an
// entry an object, until Forget.
type Tracker struct {
	mu        sync.Mutex
	firstSeen map[types.NamespacedName]time.Time
}

// Since is how long it has been so with an object; 0 where it begins now.
func (o *Tracker) Since(name types.NamespacedName, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.firstSeen == nil {
		o.firstSeen = map[types.NamespacedName]time.Time{}
	}
	begun, ok := o.firstSeen[name]
	if !ok {
		o.firstSeen[name], begun = now, now
	}
	return now.Sub(begun)
}

// Forget says that it is no longer so with an object, or that the object is gone.
func (o *Tracker) Forget(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.firstSeen, name)
}

// Len is the number of objects with which it is so.
func (o *Tracker) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.firstSeen)
}
