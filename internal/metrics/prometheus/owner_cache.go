// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"slices"
	"sync"
	"time"

	"crane.io/crane/internal/metrics"
)

// rereading is a Source that keeps the owners of the days that it has read.
type rereading struct {
	*Source

	kept keptOwners
}

var (
	_ metrics.Rereader     = (*Source)(nil)
	_ metrics.Rereader     = (*rereading)(nil)
	_ metrics.DayReader    = (*rereading)(nil)
	_ metrics.HourlyReader = (*rereading)(nil)
	_ metrics.MemoryTeller = (*rereading)(nil)
)

// Rereading implements metrics.Rereader.
func (s *Source) Rereading() metrics.UsageReader { return &rereading{Source: s} }

// Rereading implements metrics.Rereader: what is kept serves whoever reads next.
func (r *rereading) Rereading() metrics.UsageReader { return r }

// Hourly implements metrics.HourlyReader.
func (r *rereading) Hourly(ctx context.Context, req metrics.HourlyRequest) ([]metrics.HourlySeries, error) {
	return r.hourly(ctx, req, &r.kept)
}

// Usage implements metrics.UsageReader.
func (r *rereading) Usage(ctx context.Context, req metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	return r.usage(ctx, req, &r.kept, visit)
}

// maxKeptOwners bounds the objects whose owners are kept, about 60 MiB of them; days beyond it are read again.
const maxKeptOwners = 300_000

// keptOwners are the owners of stretches of time. A nil one keeps nothing.
type keptOwners struct {
	mu        sync.Mutex
	objects   int
	stretches []keptStretch
}

type keptStretch struct {
	from, to time.Time
	scope    scope
	owners   *owners
}

// find returns the owners of a stretch that holds the one between two times; nil where there is none.
func (k *keptOwners) find(from, to time.Time, in scope) *owners {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.stretches {
		if !s.from.After(from) && !s.to.Before(to) && s.scope.covers(in) {
			return s.owners
		}
	}
	return nil
}

func (k *keptOwners) keep(from, to time.Time, in scope, o *owners) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(o.pods) + len(o.nodes) + len(o.replicaSets) + len(o.jobs)
	if k.objects+n > maxKeptOwners {
		return
	}
	k.objects += n
	k.stretches = append(k.stretches, keptStretch{from, to, in, o})
}

// covers tells whether the owners of one scope hold those of another: all of them, or those of at least the same namespaces.
// The names of both are sorted.
func (in scope) covers(other scope) bool {
	if in.all || other.all {
		return in.all
	}
	for _, ns := range other.names {
		if _, found := slices.BinarySearch(in.names, ns); !found {
			return false
		}
	}
	return true
}
