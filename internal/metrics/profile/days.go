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

// dayCollector reads use day by day: finished days from the cache where they are there, the rest from the source. With
// and without a cache the sketches of a day are made in the same way, so that both lead to the same numbers.
type dayCollector struct {
	usage  *Usage
	source metrics.DayReader
	// days is nil where nothing is kept.
	days *serverCache
}

// dayRange is a run of days of which the same namespaces have to be read.
type dayRange struct {
	first, last series.Day
	namespaces  []string
}

func (r *dayCollector) read(ctx context.Context, req metrics.UsageRequest) error {
	first, last := series.DayOf(req.Start), series.DayOf(req.End.Add(-1))
	if r.days == nil || len(req.Namespaces) == 0 {
		return r.readRange(ctx, req, dayRange{first, last, req.Namespaces})
	}
	var err error
	// The step is part of what names a cached day: what was read with another one weighs otherwise.
	if req.Step, err = r.source.Step(ctx, req.Resource, req.End); err != nil {
		return err
	}
	var missing []dayRange
	for d := first; d <= last; d++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		rest := req.Namespaces
		if r.days.final(d, req) {
			rest = r.days.load(d, req, r.usage.merge)
		}
		if n := len(missing); n > 0 && missing[n-1].last == d-1 && slices.Equal(missing[n-1].namespaces, rest) {
			missing[n-1].last = d
		} else if len(rest) > 0 {
			missing = append(missing, dayRange{d, d, rest})
		}
	}
	for _, m := range missing {
		if err := r.readRange(ctx, req, m); err != nil {
			return err
		}
	}
	return nil
}

// readRange reads a stretch in one go and keeps each of its days as soon as it is whole, so that a reading that is
// interrupted has not been in vain.
func (r *dayCollector) readRange(ctx context.Context, req metrics.UsageRequest, s dayRange) error {
	req.Namespaces = s.namespaces
	if start := s.first.Start(); start.After(req.Start) {
		req.Start = start
	}
	if end := s.last.End(); end.Before(req.End) {
		req.End = end
	}
	open := newDayUsage(s.first)
	err := r.source.Usage(ctx, req, func(c metrics.Chunk) error {
		day := series.DayOf(c.Series.Start)
		if day < open.day {
			return fmt.Errorf("use of %v came after use of %v: the source does not read day by day", day, open.day)
		}
		for open.day < day {
			r.finish(req, open)
			open = newDayUsage(open.day + 1)
		}
		key := r.usage.keyOf(c.Key)
		if r.days == nil && !r.usage.includes(key) {
			return nil
		}
		if r.usage.includes(key) {
			r.usage.totals.add(key.identity, c, req.Resource)
		}
		open.add(key, c, req.Resource)
		return nil
	})
	if err != nil {
		return err
	}
	for ; open.day <= s.last; open = newDayUsage(open.day + 1) {
		r.finish(req, open)
	}
	return nil
}

func (r *dayCollector) finish(req metrics.UsageRequest, d *dayUsage) {
	if r.days != nil && r.days.final(d.day, req) {
		r.days.save(d, req)
	}
	// In the order of the cache: the parts of a DaemonSet add up to the same, to the bit, with it and without.
	for _, key := range slices.SortedFunc(maps.Keys(d.profiles), container.compare) {
		r.usage.merge(key, d.profiles[key])
	}
}

// dayUsage is what all containers of some namespaces used of one resource on one day.
type dayUsage struct {
	day      series.Day
	profiles map[container]*rightsize.Profile
	// pods are a few names, sorted by hash, by which a server can be known again.
	pods []hashedPod
	// seen are the containers of pods of which use was read.
	seen map[podContainer]bool
}

type podContainer struct {
	container
	pod string
}

type hashedPod struct {
	hash uint32
	name string
}

// maxFingerprintPods is how many pods a server is known by.
const maxFingerprintPods = 32

func newDayUsage(day series.Day) *dayUsage {
	return &dayUsage{day: day, profiles: map[container]*rightsize.Profile{}, seen: map[podContainer]bool{}}
}

func (d *dayUsage) add(key container, c metrics.Chunk, resource metrics.Resource) {
	profile := d.profiles[key]
	if profile == nil {
		profile = rightsize.NewProfile()
		d.profiles[key] = profile
	}
	addChunk(profile, c, resource, d.startTime(key, c))
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

// startTime is when a container started: where the first use of its pod on a day is not at the begin of the day, it was not
// there before. After a gap over midnight that is not so, and the few minutes that count as a start then do no harm.
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

// settleTime is how long after its end a day may still change: remote writers and object stores lag behind.
const settleTime = 3 * time.Hour
