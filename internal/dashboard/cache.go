// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Cache holds one Shared value for each key. The key has everything on which the value depends, also the rights with which it was read. The
// least recently used value is dropped.
type Cache[K comparable, T any] struct {
	newValue func(key K) *Shared[T]

	mu     sync.Mutex
	values *lru.Cache
}

// Limits are the limits of a Cache: the number of values, and those of each Shared.
type Limits struct {
	Size                   int
	TTL, Timeout, Patience time.Duration
}

// NewCache returns a cache of values that are read by read.
func NewCache[K comparable, T any](limits Limits, clock clock.Clock, read func(ctx context.Context, key K) (*T, error)) *Cache[K, T] {
	return &Cache[K, T]{values: lru.New(limits.Size), newValue: func(key K) *Shared[T] {
		return &Shared[T]{
			Read:     func(ctx context.Context) (*T, error) { return read(ctx, key) },
			TTL:      limits.TTL,
			Timeout:  limits.Timeout,
			Patience: limits.Patience,
			Clock:    clock,
		}
	}}
}

// Get returns the value of a key, the time at which it was read, and why it is stale; empty if it is not.
func (c *Cache[K, T]) Get(ctx context.Context, key K) (value *T, at time.Time, stale string, err error) {
	return c.of(key).Get(ctx)
}

func (c *Cache[K, T]) of(key K) *Shared[T] {
	c.mu.Lock()
	defer c.mu.Unlock()

	if found, ok := c.values.Get(key); ok {
		value, _ := found.(*Shared[T])
		return value
	}

	value := c.newValue(key)
	c.values.Add(key, value)
	return value
}
