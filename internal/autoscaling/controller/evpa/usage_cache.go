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

// usageCache keeps what the workloads of each namespace used for as long as it counts as new: a namespace is looked at more often than
// its history changes a percentile. It holds the profiles of workloads with an autoscaler, and of no others.
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

// get returns the use of workloads of one namespace, read anew where what is kept is too old or does not cover them.
func (u *usageCache) get(
	ctx context.Context, from profile.Source, namespace string, all []workload.Workload, c usageQuery,
) (*profile.Usage, error) {
	u.mu.Lock()
	kept := u.byNamespace[namespace]
	u.mu.Unlock()
	if kept != nil && c.now.Sub(kept.at) < c.maxAge && kept.window >= c.window && kept.coversAll(all) {
		return kept.usage, nil
	}
	reading, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	usage, err := profile.Collect(reading, from, profile.Request{Workloads: all, End: c.now.Truncate(time.Minute), Length: c.window, NodeGroups: c.groups})
	if err != nil {
		return nil, err
	}
	next := &cachedUsage{usage: usage, at: c.now, window: c.window, covers: map[workload.Ref]bool{}}
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

// usageQuery says how far back is read, and how long what was read counts.
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

// forget drops a namespace that has no autoscaler any more.
func (u *usageCache) forget(namespace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byNamespace, namespace)
}
