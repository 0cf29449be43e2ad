// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profile turns the use that a source streams into one profile for each container of the workloads that are
// asked about, in one pass over their namespaces. craned and the command line share it, so that both decide from the
// same numbers. It knows sources (internal/metrics) and profiles (pkg/rightsize); it must not know what is decided
// from them, nor the Kubernetes API.
package profile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Request says whose use is wanted and how far back.
type Request struct {
	Workloads []workload.Workload
	// End is exclusive; Length, more than 0, is what lies before it. The day in UTC in which that begins is read whole:
	// decisions look at days.
	End    time.Time
	Length time.Duration
	// NodeGroups are the groups of the nodes by name; nil where they are not known. Use of DaemonSets is then also kept
	// apart by group.
	NodeGroups map[string]string
	// Totals asks for the use of each workload over all its pods as well. It needs the samples themselves, so that days are
	// not taken from a cache then.
	Totals bool
}

// Source is where history is read from.
type Source struct {
	Usage metrics.UsageReader
	// OOMs may be nil: then kills for lack of memory are not looked at.
	OOMs metrics.OOMReader
	// Cache may be nil: then every day is read anew. It serves readers that are a metrics.DayReader.
	Cache *Cache
}

// Usage holds the profiles of a Request.
type Usage struct {
	profiles map[container]*rightsize.Profile
	// grouped are parts of the profiles of DaemonSets, those of the nodes of each group; nodeGroups are the groups.
	grouped    map[container]*rightsize.Profile
	nodeGroups map[string]string
	// kills are those of a container for lack of memory; their memory is 0 where the source does not know it.
	kills map[container][]rightsize.OOM
	// heaps are what Java runtimes said, the largest of all pods of a container.
	heaps map[container]heapSizes
	// byWorkload lists the containers that were seen of each workload.
	byWorkload map[identity][]string
	// constraints are what the cluster sets to sizes.
	constraints workload.Constraints
	// totals are the uses over all pods, nil where they were not asked for.
	totals *totals
}

// identity is a workload without the version of its API: metrics do not know it.
type identity struct{ namespace, kind, name string }

type container struct {
	identity
	name string
	// group is that of the nodes; empty for what is not of a DaemonSet, and where the node is not known or gone.
	group string
}

func identityOf(ref workload.Ref) identity {
	return identity{namespace: ref.Namespace, kind: ref.Kind, name: ref.Name}
}

// Collect reads CPU and memory of all workloads' namespaces, once each, and keeps what belongs to the workloads. After
// an error of the source nothing is returned: half a history would give numbers that are too small.
func Collect(ctx context.Context, from Source, req Request) (*Usage, error) {
	u := &Usage{
		profiles:   map[container]*rightsize.Profile{},
		grouped:    map[container]*rightsize.Profile{},
		nodeGroups: req.NodeGroups,
		kills:      map[container][]rightsize.OOM{},
		heaps:      map[container]heapSizes{},
		byWorkload: map[identity][]string{},
	}
	distinct := map[string]bool{}
	for _, w := range req.Workloads {
		u.byWorkload[identityOf(w.Ref)] = nil
		distinct[w.Namespace] = true
	}
	if len(distinct) == 0 {
		return u, nil
	}
	var namespaces []string // Stays empty, which means all, where a workload has none, as those from files.
	if !distinct[""] {
		namespaces = slices.Sorted(maps.Keys(distinct))
	}
	start := series.DayOf(req.End.Add(-req.Length)).Start()
	if again, ok := from.Usage.(metrics.Rereader); ok {
		from.Usage = again.Rereading()
	}
	if req.Totals {
		u.totals = newTotals(start, req.End)
		from.Cache = nil
	}
	read := u.reader(ctx, from)
	for _, resource := range []metrics.Resource{metrics.CPU, metrics.Memory} {
		err := read(ctx, metrics.UsageRequest{Namespaces: namespaces, Resource: resource, Start: start, End: req.End})
		if err != nil {
			return nil, fmt.Errorf("reading the %s use of %d namespaces: %w", resource, len(distinct), err)
		}
	}
	if err := u.readDetails(ctx, from, metrics.UsageRequest{Namespaces: namespaces, Start: start, End: req.End}, read); err != nil {
		return nil, err
	}
	if from.OOMs != nil {
		err := from.OOMs.OOMKills(ctx, metrics.Window{Start: start, End: req.End}, namespaces, u.addKill)
		if err != nil {
			return nil, fmt.Errorf("reading the OOM kills of %d namespaces: %w", len(distinct), err)
		}
	}
	if reader, reads := from.Usage.(metrics.HeapReader); reads {
		err := reader.Heaps(ctx, metrics.Window{Start: start, End: req.End}, namespaces, u.addHeap)
		if err != nil {
			return nil, fmt.Errorf("reading the Java heaps of %d namespaces: %w", len(distinct), err)
		}
	}
	for _, all := range []map[container]*rightsize.Profile{u.profiles, u.grouped} {
		for _, p := range all {
			p.Compact()
		}
	}
	for id := range u.byWorkload {
		slices.Sort(u.byWorkload[id])
	}
	return u, nil
}

// reader chooses how use is read: day by day, with a cache of days where there is one, or in whatever order it comes.
func (u *Usage) reader(ctx context.Context, from Source) func(context.Context, metrics.UsageRequest) error {
	days, byDay := from.Usage.(metrics.DayReader)
	if byDay {
		r := &dayCollector{usage: u, source: days, days: from.Cache.open(ctx, days, u.nodeGroups != nil)}
		return r.read
	}
	return func(ctx context.Context, req metrics.UsageRequest) error {
		return from.Usage.Usage(ctx, req, func(c metrics.Chunk) error {
			if key := u.keyOf(c.Key); u.includes(key) {
				u.totals.add(key.identity, c, req.Resource)
				for _, p := range u.profilesOf(key) {
					addChunk(p, c, req.Resource, time.Time{})
				}
			}
			return nil
		})
	}
}

// readDetails reads what memory is made of, by the first resource of which there are data.
func (u *Usage) readDetails(
	ctx context.Context, from Source, req metrics.UsageRequest, read func(context.Context, metrics.UsageRequest) error,
) error {
	teller, tells := from.Usage.(metrics.MemoryTeller)
	if !tells || len(u.profiles) == 0 {
		return nil
	}
	for _, req.Resource = range teller.MemoryDetails() {
		if err := read(ctx, req); err != nil {
			return fmt.Errorf("reading the %s of %d namespaces: %w", req.Resource, len(req.Namespaces), err)
		}
		for _, p := range u.profiles {
			for _, d := range p.Days() {
				if d.ReclaimBasis != rightsize.BasisUnknown {
					return nil
				}
			}
		}
	}
	return nil
}

func (u *Usage) keyOf(key metrics.ContainerKey) container {
	out := container{identity: identityOf(key.Workload), name: key.Container}
	if out.kind == daemonSet {
		out.group = u.nodeGroups[key.Node]
	}
	return out
}

// daemonSet is the kind whose pods run on unlike nodes and share one template.
const daemonSet = "DaemonSet"

// withoutGroup is the key of the container whatever the nodes.
func (c container) withoutGroup() container {
	c.group = ""
	return c
}

func (u *Usage) includes(key container) bool {
	_, wanted := u.byWorkload[key.identity]
	return wanted
}

// profile returns the profile of a container that is wanted, and makes it where there is none.
func (u *Usage) profile(key container) *rightsize.Profile {
	profile := u.profiles[key]
	if profile == nil {
		profile = rightsize.NewProfile()
		u.profiles[key] = profile
		u.byWorkload[key.identity] = append(u.byWorkload[key.identity], key.name)
	}
	return profile
}

// profilesOf returns the profile of a container, and the part of it that is of the nodes of the key's group.
func (u *Usage) profilesOf(key container) []*rightsize.Profile {
	out := []*rightsize.Profile{u.profile(key.withoutGroup())}
	if key.group == "" {
		return out
	}
	part := u.grouped[key]
	if part == nil {
		part = rightsize.NewProfile()
		u.grouped[key] = part
	}
	return append(out, part)
}

// merge adds a day's sketch of a container that is wanted.
func (u *Usage) merge(key container, day *rightsize.Profile) {
	if !u.includes(key) {
		return
	}
	for _, p := range u.profilesOf(key) {
		p.Merge(day)
	}
}

func addChunk(profile *rightsize.Profile, c metrics.Chunk, resource metrics.Resource, started time.Time) {
	use := rightsize.Usage{Pod: c.Key.Pod, Series: c.Series, Started: started}
	switch resource {
	case metrics.CPU:
		profile.AddCPU(use)
	case metrics.Memory:
		profile.AddMemory(use)
	case metrics.HeldMemory:
		profile.AddUnreclaimable(use, rightsize.WithoutActiveFile)
	case metrics.AnonymousMemory:
		profile.AddUnreclaimable(use, rightsize.AnonymousOnly)
	}
}

func (u *Usage) addKill(k metrics.OOMKill) error {
	id := identityOf(k.Key.Workload)
	if _, wanted := u.byWorkload[id]; wanted {
		key := container{identity: id, name: k.Key.Container}
		u.kills[key] = append(u.kills[key], rightsize.OOM{At: k.Time, Memory: k.Memory})
	}
	return nil
}

// Profile returns the profile of a container, nil where no use of it was found.
func (u *Usage) Profile(ref workload.Ref, name string) *rightsize.Profile {
	return u.profiles[container{identity: identityOf(ref), name: name}]
}

// ContainerNames returns the names of the workload's containers that have a profile, sorted. There may be some that the pod
// template does not have: injected ones, and those of earlier templates.
func (u *Usage) ContainerNames(ref workload.Ref) []string { return u.byWorkload[identityOf(ref)] }

// ContainerCount is the number of containers with a profile.
func (u *Usage) ContainerCount() int { return len(u.profiles) }
