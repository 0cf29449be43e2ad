// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package firstseen remembers since when something has been so with objects.
package firstseen

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Onsets are the times at which something began. The zero value knows none. It is safe for use by several goroutines. It holds an
// entry an object, until Forget.
type Onsets struct {
	mu    sync.Mutex
	begun map[types.NamespacedName]time.Time
}

// Since is how long it has been so with an object; 0 where it begins now.
func (o *Onsets) Since(name types.NamespacedName, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun == nil {
		o.begun = map[types.NamespacedName]time.Time{}
	}
	begun, ok := o.begun[name]
	if !ok {
		o.begun[name], begun = now, now
	}
	return now.Sub(begun)
}

// Forget says that it is no longer so with an object, or that the object is gone.
func (o *Onsets) Forget(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.begun, name)
}

// Len is the number of objects with which it is so.
func (o *Onsets) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.begun)
}
