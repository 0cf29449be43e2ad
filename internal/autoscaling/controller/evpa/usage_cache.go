// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"sync"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
)

// usageCache keeps the usage of the targets in each namespace, because reconciles are more frequent than changes of a percentile.
type usageCache struct {
	mu          sync.Mutex
	byNamespace map[string]*cachedUsage
}

type cachedUsage struct {
	usage  *profile.Usage
	at     time.Time
	window time.Duration
	covers map[workload.Ref]bool
}

// get returns the usage of workloads of one namespace. It reads the history where the cached usage is too old or does not cover them.
func (u *usageCache) get(
	ctx context.Context, from profile.Source, namespace string, all []workload.Workload, c usageQuery,
) (*profile.Usage, error) {
	u.mu.Lock()
	cached := u.byNamespace[namespace]
	u.mu.Unlock()

	if cached != nil && c.now.Sub(cached.at) < c.maxAge && cached.window >= c.window && cached.coversAll(all) {
		return cached.usage, nil
	}

	// The lock is not held while the source answers: other namespaces must not wait.
	readCtx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()

	usage, err := profile.Collect(readCtx, from, profile.Request{
		Workloads:  all,
		End:        c.now.Truncate(time.Minute),
		Length:     c.window,
		NodeGroups: c.groups,
	})
	if err != nil {
		return nil, err
	}

	next := &cachedUsage{
		usage:  usage,
		at:     c.now,
		window: c.window,
		covers: map[workload.Ref]bool{},
	}

	for _, w := range all {
		next.covers[w.Ref] = true
	}

	u.mu.Lock()
	defer u.mu.Unlock()

	if u.byNamespace == nil {
		u.byNamespace = map[string]*cachedUsage{}
	}

	u.byNamespace[namespace] = next
	return usage, nil
}

// usageQuery is a window that ends now, and the maximum age of a cached result.
type usageQuery struct {
	now            time.Time
	window, maxAge time.Duration
	groups         map[string]string
}

func (u *cachedUsage) coversAll(all []workload.Workload) bool {
	for _, w := range all {
		if !u.covers[w.Ref] {
			return false
		}
	}

	return true
}

// forget drops the usage of a namespace.
func (u *usageCache) forget(namespace string) {
	u.mu.Lock()
	defer u.mu.Unlock()

	delete(u.byNamespace, namespace)
}
