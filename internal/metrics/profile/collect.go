// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profile collects the usage of workloads from a data source into one profile for each container, with one read of each namespace.
// craned and the command line share it, so that both decide on the same numbers. It must not depend on the decisions or on the Kubernetes
// API.
package profile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Request selects workloads and a time range.
type Request struct {
	Workloads []workload.Workload
	// End is exclusive; Length, more than 0, is the time before it. The UTC day that contains the start is read as a whole, as decisions are
	// based on days.
	End    time.Time
	Length time.Duration
	// NodeGroups maps nodes to their groups; nil where groups are unknown. With groups, the usage of DaemonSets is also kept by group.
	NodeGroups map[string]string
	// Totals requests the usage of each workload over all its pods as well. It needs the samples themselves, so no day is read from a cache.
	Totals bool
	// Reaction requests the effect of the default reaction on the CPU usage of each day, which a calibration for workloads that are raised
	// within the day needs.
	Reaction bool
}

// Source is a data source with an optional cache. A nil OOM skips OOM kills.
type Source struct {
	metrics.Capabilities
	// Cache may be nil. It applies to sources that read day by day.
	Cache *Cache
}

// Usage holds the profiles of a Request.
type Usage struct {
	profiles map[container]*rightsize.Profile
	// grouped holds the parts of the profiles of DaemonSets by node group; nodeGroups maps nodes to groups.
	grouped    map[container]*rightsize.Profile
	nodeGroups map[string]string
	// reaction is the reaction whose effect is kept; nil for none.
	reaction *calibrate.Reaction
	// capacities are what nodes and limits could give on the days that are not cached; nil where unknown.
	capacities *metrics.Capacities
	// kills are the OOM kills of a container, with memory 0 where unknown.
	kills map[container][]rightsize.OOM
	// unknownKills has the reason by namespace why kills are unknown.
	unknownKills map[string]string
	// heaps holds the largest Java heap of all pods of a container.
	heaps map[container]heapSizes
	// requested has the workloads whose usage is read.
	requested map[identity]bool
	// constraints are the limits that the cluster sets to sizes.
	constraints workload.Constraints
	// totals is nil unless requested.
	totals *totals
}

// identity is a workload without its API version, which metrics do not contain. The runs of one template have one identity.
type identity struct{ namespace, kind, name string }

// container is a container of all pods of a workload.
type container struct {
	identity
	name string
	// group is the node group; empty for workloads other than DaemonSets and for unknown or deleted nodes.
	group string
}

func identityOf(ref workload.Ref) identity {
	ref = ref.RunGroup()
	return identity{namespace: ref.Namespace, kind: ref.Kind, name: ref.Name}
}

// Collect reads CPU and memory usage in the namespaces of all workloads, once each, and keeps that of the workloads. It returns no partial
// result after an error of the source, as a partial history would lead to small requests.
func Collect(ctx context.Context, from Source, req Request) (*Usage, error) {
	u := &Usage{
		profiles:   map[container]*rightsize.Profile{},
		grouped:    map[container]*rightsize.Profile{},
		nodeGroups: req.NodeGroups,
		kills:      map[container][]rightsize.OOM{},
		heaps:      map[container]heapSizes{},
		requested:  map[identity]bool{},
	}

	distinct := map[string]bool{}
	for _, w := range req.Workloads {
		u.requested[identityOf(w.Ref)] = true
		distinct[w.Namespace] = true
	}

	if len(distinct) == 0 {
		return u, nil
	}

	var namespaces []string // Empty, which means all, where a workload has no namespace, as those from files.
	if !distinct[""] {
		namespaces = slices.Sorted(maps.Keys(distinct))
	}

	start := series.DayOf(req.End.Add(-req.Length)).Start()
	from.Capabilities = from.WithCache()

	if req.Reaction {
		u.reaction = calibrate.DefaultSettings().Reaction
	}

	if req.Totals {
		u.totals = newTotals(start, req.End)
		from.Cache = nil
	}

	c := &dayCollector{
		usage:      u,
		source:     from.Capabilities,
		namespaces: namespaces,
		end:        req.End,
	}
	if from.Days != nil {
		c.cache = from.Cache.open(ctx, from.Days, u.nodeGroups != nil, req.Reaction)
	}

	usage := metrics.UsageRequest{Namespaces: namespaces, Start: start, End: req.End}
	for _, usage.Resource = range []metrics.UsageKind{metrics.CPU, metrics.Memory} {
		if err := c.read(ctx, usage); err != nil {
			return nil, fmt.Errorf("reading the %s usage of %d namespaces: %w", usage.Resource, len(distinct), err)
		}
	}

	if err := c.readBreakdown(ctx, usage); err != nil {
		return nil, err
	}

	if err := u.readEvents(ctx, from.Capabilities, metrics.Window{Start: start, End: req.End}, namespaces); err != nil {
		return nil, err
	}

	for _, all := range []map[container]*rightsize.Profile{u.profiles, u.grouped} {
		for _, p := range all {
			p.Compact()
		}
	}

	return u, nil
}

// readCapacities reads what nodes and limits could give, where the source has it.
func readCapacities(ctx context.Context, from metrics.CapacityReader, w metrics.Window, namespaces []string) (*metrics.Capacities, error) {
	if from == nil {
		return nil, nil
	}

	capacities, err := from.Capacities(ctx, w, namespaces)
	if err != nil && !errors.Is(err, metrics.ErrUnsupported) {
		return nil, fmt.Errorf("reading the limits and nodes of %d namespaces: %w", len(namespaces), err)
	}

	return capacities, nil
}

// readEvents reads OOM kills and Java heaps, where the source has them.
func (u *Usage) readEvents(ctx context.Context, from metrics.Capabilities, w metrics.Window, namespaces []string) error {
	if from.OOM != nil {
		for kill, err := range from.OOM.OOMKills(ctx, w, namespaces) {
			if err != nil {
				return fmt.Errorf("reading the OOM kills of %d namespaces: %w", len(namespaces), err)
			}

			if kill.Unknown != "" {
				if u.unknownKills == nil {
					u.unknownKills = map[string]string{}
				}

				u.unknownKills[kill.Key.Workload.Namespace] = kill.Unknown
				continue
			}

			if key := (container{identity: identityOf(kill.Key.Workload), name: kill.Key.Container}); u.includes(key) {
				u.kills[key] = append(u.kills[key], rightsize.OOM{At: kill.Time, Memory: kill.Memory, NoLimit: kill.NoLimit})
			}
		}
	}

	if from.Heaps != nil {
		for heap, err := range from.Heaps.Heaps(ctx, w, namespaces) {
			if err != nil {
				return fmt.Errorf("reading the Java heaps of %d namespaces: %w", len(namespaces), err)
			}

			u.addHeap(heap)
		}
	}

	return nil
}

// keyOf returns the container of a pod's container.
func (u *Usage) keyOf(key metrics.ContainerKey) container {
	out := container{identity: identityOf(key.Workload), name: key.Container}
	if out.kind == daemonSet {
		out.group = u.nodeGroups[key.Node]
	}

	return out
}

// daemonSet is the kind whose pods run on different kinds of nodes with the same template.
const daemonSet = "DaemonSet"

// withoutGroup returns the key of the container on all nodes.
func (c container) withoutGroup() container {
	c.group = ""
	return c
}

// includes reports whether a container belongs to a requested workload.
func (u *Usage) includes(key container) bool {
	return u.requested[key.identity]
}

// profilesOf returns the profile of a container, and its part for the key's node group. It adds missing ones.
func (u *Usage) profilesOf(key container) []*rightsize.Profile {
	all := key.withoutGroup()
	profile := u.profiles[all]
	if profile == nil {
		profile = rightsize.NewProfile()
		u.profiles[all] = profile
	}

	if key.group == "" {
		return []*rightsize.Profile{profile}
	}

	part := u.grouped[key]
	if part == nil {
		part = rightsize.NewProfile()
		u.grouped[key] = part
	}

	return []*rightsize.Profile{profile, part}
}

// merge adds the profile of one day to a requested container.
func (u *Usage) merge(key container, day *rightsize.Profile) {
	if !u.includes(key) {
		return
	}

	for _, p := range u.profilesOf(key) {
		p.Merge(day)
	}
}

// addChunk adds usage to a profile. started is the start of the container, zero where unknown; reaction is nil for none.
func (u *Usage) addChunk(profile *rightsize.Profile, c metrics.Chunk, resource metrics.UsageKind, started time.Time) {
	usage := rightsize.Usage{
		Pod:      c.Key.Pod,
		Series:   c.Series,
		Started:  started,
		Capacity: u.capacities.Bound(c, resource),
		Limit:    u.capacities.Limit(c.Key, resource, c.Series.Start),
		Reaction: u.reaction,
	}

	switch resource {
	case metrics.CPU:
		if share, ok := u.capacities.Throttling(c.Key, c.Series.Start); ok {
			usage.Throttling = &rightsize.Throttling{Share: units.Ratio(share)}
		}

		profile.AddCPU(usage)
	case metrics.Memory:
		profile.AddMemory(usage)
	case metrics.UnreclaimableMemory:
		profile.AddUnreclaimable(usage, rightsize.WithoutActiveFile)
	case metrics.AnonymousMemory:
		profile.AddUnreclaimable(usage, rightsize.AnonymousOnly)
	}
}

// Profile returns the profile of a container; nil without usage.
func (u *Usage) Profile(ref workload.Ref, name string) *rightsize.Profile {
	return u.profiles[container{identity: identityOf(ref), name: name}]
}
