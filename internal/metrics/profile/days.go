// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// settleTime is how long after its end a day may still change: remote writers and object stores are delayed.
const settleTime = 3 * time.Hour

// dayCollector reads usage into a Usage. Where the source reads day by day, finished days come from the cache if it has them. The profiles of
// a day are built in the same way with and without a cache, so that both give the same numbers.
type dayCollector struct {
	usage  *Usage
	source metrics.Capabilities
	// cache is nil where nothing is cached.
	cache *serverCache
	// namespaces and end are those of the request.
	namespaces []string
	end        time.Time
	// capacitiesFrom is the start of the capacities of usage; zero if they were not read.
	capacitiesFrom time.Time
}

// dayRange is a range of days with the same missing namespaces.
type dayRange struct {
	first, last series.Day
	namespaces  []string
}

// read adds the usage of one resource.
func (r *dayCollector) read(ctx context.Context, req metrics.UsageRequest) error {
	if r.source.Days == nil {
		return r.readUnordered(ctx, req)
	}

	first := series.DayOf(req.Start)
	last := series.DayOf(req.End.Add(-1))
	if r.cache == nil || len(req.Namespaces) == 0 {
		return r.readRange(ctx, req, dayRange{first, last, req.Namespaces})
	}

	var err error
	// The step identifies a cached day, as samples of another step have another weight.
	if req.Step, err = r.source.Days.Step(ctx, req.Resource, req.End); err != nil {
		return err
	}

	var missing []dayRange
	for d := first; d <= last; d++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		namespaces := req.Namespaces
		if r.cache.final(d, req) {
			var cached []containerDay
			cached, namespaces = r.cache.load(d, req)
			for _, c := range cached {
				r.usage.merge(c.key, c.profile)
			}
		}

		if n := len(missing); n > 0 && missing[n-1].last == d-1 && slices.Equal(missing[n-1].namespaces, namespaces) {
			missing[n-1].last = d
		} else if len(namespaces) > 0 {
			missing = append(missing, dayRange{d, d, namespaces})
		}
	}

	for _, m := range missing {
		if err := r.readRange(ctx, req, m); err != nil {
			return err
		}
	}

	return nil
}

// needCapacities reads the capacities from a time on, unless they are known. The profiles of cached days do not need them again.
func (r *dayCollector) needCapacities(ctx context.Context, start time.Time) error {
	if !r.capacitiesFrom.IsZero() && !start.Before(r.capacitiesFrom) {
		return nil
	}

	capacities, err := readCapacities(ctx, r.source.Capacity, metrics.Window{Start: start, End: r.end}, r.namespaces)
	if err != nil {
		return err
	}

	r.usage.capacities = capacities
	r.capacitiesFrom = start
	return nil
}

// readUnordered reads from a source that returns chunks in any order.
func (r *dayCollector) readUnordered(ctx context.Context, req metrics.UsageRequest) error {
	if err := r.needCapacities(ctx, req.Start); err != nil {
		return err
	}

	for c, err := range r.source.Usage.Usage(ctx, req) {
		if err != nil {
			return err
		}

		key := r.usage.keyOf(c.Key)
		if !r.usage.includes(key) {
			continue
		}

		r.usage.totals.add(key.identity, r.usage.capacities, c, req.Resource)
		for _, p := range r.usage.profilesOf(key) {
			r.usage.addChunk(p, c, req.Resource, time.Time{})
		}
	}

	return nil
}

// readRange reads a range of days at once. It caches each day as soon as it is complete, so that an interrupted read is not lost.
func (r *dayCollector) readRange(ctx context.Context, req metrics.UsageRequest, s dayRange) error {
	req.Namespaces = s.namespaces
	if start := s.first.Start(); start.After(req.Start) {
		req.Start = start
	}
	if end := s.last.End(); end.Before(req.End) {
		req.End = end
	}

	if err := r.needCapacities(ctx, req.Start); err != nil {
		return err
	}

	open := newDayUsage(s.first, r.usage)
	for c, err := range r.source.Usage.Usage(ctx, req) {
		if err != nil {
			return err
		}

		day := series.DayOf(c.Series.Start)
		if day < open.day {
			return fmt.Errorf("usage of %v after usage of %v: the source does not read day by day", day, open.day)
		}

		// Chunks come day by day, so a later one completes the earlier days, including those without usage.
		for open.day < day {
			r.finishDay(req, open)
			open = newDayUsage(open.day+1, r.usage)
		}

		key := r.usage.keyOf(c.Key)
		included := r.usage.includes(key)
		if included {
			r.usage.totals.add(key.identity, r.usage.capacities, c, req.Resource)
		}
		// With a cache, workloads that were not requested are kept too: a later run may request them.
		if included || r.cache != nil {
			open.add(key, c, req.Resource)
		}
	}

	for ; open.day <= s.last; open = newDayUsage(open.day+1, r.usage) {
		r.finishDay(req, open)
	}

	return nil
}

// finishDay caches and merges a complete day.
func (r *dayCollector) finishDay(req metrics.UsageRequest, d *dayUsage) {
	if r.cache != nil && r.cache.final(d.day, req) {
		r.cache.save(d, req)
	}

	// In the order of the cache, so that the parts of a DaemonSet have exactly the same sum with and without it.
	for _, key := range slices.SortedFunc(maps.Keys(d.profiles), container.compare) {
		r.usage.merge(key, d.profiles[key])
	}
}

// readBreakdown adds the parts of memory from the first resource with data.
func (r *dayCollector) readBreakdown(ctx context.Context, req metrics.UsageRequest) error {
	if len(r.usage.profiles) == 0 {
		return nil
	}

	for _, req.Resource = range r.source.MemoryBreakdown {
		if err := r.read(ctx, req); err != nil {
			return fmt.Errorf("reading the %s of %d namespaces: %w", req.Resource, len(req.Namespaces), err)
		}

		if r.usage.hasBreakdown() {
			return nil
		}
	}

	return nil
}

// hasBreakdown reports whether any profile has data about the parts of memory.
func (u *Usage) hasBreakdown() bool {
	for _, p := range u.profiles {
		for _, d := range p.Days() {
			if d.ReclaimBasis != rightsize.BasisUnknown {
				return true
			}
		}
	}

	return false
}

// dayUsage is the usage of one resource by all containers of some namespaces on one day.
type dayUsage struct {
	day      series.Day
	profiles map[container]*rightsize.Profile
	// pods are a few names, sorted by hash, that identify a server.
	pods []hashedPod
	// seen are the containers of pods with usage.
	seen map[podContainer]bool
	// usage is that of all days, which has the settings.
	usage *Usage
}

// podContainer is a container of one pod.
type podContainer struct {
	container
	pod string
}

type hashedPod struct {
	hash uint32
	name string
}

// maxFingerprintPods bounds the pods that identify a server.
const maxFingerprintPods = 32

func newDayUsage(day series.Day, usage *Usage) *dayUsage {
	return &dayUsage{
		day:      day,
		profiles: map[container]*rightsize.Profile{},
		seen:     map[podContainer]bool{},
		usage:    usage,
	}
}

// add adds a chunk of the day.
func (d *dayUsage) add(key container, c metrics.Chunk, resource metrics.UsageKind) {
	profile := d.profiles[key]
	if profile == nil {
		profile = rightsize.NewProfile()
		d.profiles[key] = profile
	}

	d.usage.addChunk(profile, c, resource, d.startTime(key, c))
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Key.Pod))

	p := hashedPod{h.Sum32(), c.Key.Pod}
	i, found := slices.BinarySearchFunc(d.pods, p, func(a, b hashedPod) int { return cmp.Compare(a.hash, b.hash) })
	if found || i >= maxFingerprintPods {
		return
	}

	d.pods = slices.Insert(d.pods, i, p)
	d.pods = d.pods[:min(len(d.pods), maxFingerprintPods)]
}

// startTime returns the start of a container: a pod whose first usage on a day is after its beginning did not exist before. This is wrong
// after a gap over midnight, where the few minutes that count as a start have no effect. It returns zero where unknown.
func (d *dayUsage) startTime(key container, c metrics.Chunk) time.Time {
	pod := podContainer{key, c.Key.Pod}
	if d.seen[pod] || len(c.Series.Values) == 0 {
		return time.Time{}
	}

	d.seen[pod] = true
	if at := c.Series.Start; at.Sub(d.day.Start()) >= c.Series.Step {
		return at
	}

	return time.Time{}
}
