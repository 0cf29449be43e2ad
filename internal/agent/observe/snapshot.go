// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"maps"
	"sync"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/units"
)

// Known is a value that may be unknown.
type Known[T any] struct {
	Value T
	OK    bool
}

func known[T any](v T) Known[T] { return Known[T]{Value: v, OK: true} }

// Snapshot is the result of a measurement. The observer's own is valid until the next measurement; Latest keeps copies.
type Snapshot struct {
	At time.Time
	// Span is the time that rates cover; 0 in the first measurement, which has none.
	Span       time.Duration
	Node       Node
	Disks      []Disk
	Interfaces []Interface
	Pods       []Pod
	// Problems holds the errors of reading, by subject.
	Problems map[string]string
}

// ContainerGroups returns the paths of the containers' groups by container ID.
func (s *Snapshot) ContainerGroups() map[string]string {
	out := map[string]string{}
	for i := range s.Pods {
		for j := range s.Pods[i].Containers {
			c := &s.Pods[i].Containers[j]
			out[c.ID] = c.Path
		}
	}

	return out
}

// Node holds the values of the whole node.
type Node struct {
	// CPUs is the number of online CPUs.
	CPUs     Known[int]
	UsedCPU  Known[units.MilliCPU]
	Memory   Known[host.Memory]
	Load     Known[host.Load]
	Pressure Pressures
	// ExclusiveIdle is the idle part of exclusive CPUs; unknown if no CPU manager assigns any, and while ExclusiveUnknown.
	ExclusiveIdle Known[units.MilliCPU]
	// ExclusiveUnknown means that CPUs are or may be exclusive, and how much of them is idle could not be measured.
	ExclusiveUnknown bool
	// DiskIOUnsupported is the reason why the kernel has no disk I/O of pods; DiskIOPartial means that it leaves out delayed writes. Both are
	// empty unless sampling is enabled.
	DiskIOUnsupported string
	DiskIOPartial     bool
	// Zones holds the NUMA nodes by number, which may have gaps; none on kernels without NUMA.
	Zones []Zone
}

// Zone is a NUMA node.
type Zone struct {
	ID     int
	Memory Known[host.ZoneMemory]

	file host.File
}

// Pressures holds the pressure of each resource.
type Pressures struct {
	CPU, Memory, IO Known[host.Pressure]
}

// Disk is a whole disk, not a partition.
type Disk struct {
	Name string
	Rate Known[DiskRate]

	last        host.Disk
	measurement uint64
}

// DiskRate is the activity of a disk per second.
type DiskRate struct {
	Reads, Writes, ReadBytes, WriteBytes float64
	// Busy is the share of time with a request in progress, from 0 to 1.
	Busy units.Ratio
}

// Interface is a network interface of the host.
type Interface struct {
	Name string
	Rate Known[InterfaceRate]

	last        host.Interface
	measurement uint64
}

// InterfaceRate is the traffic of an interface per second.
type InterfaceRate struct {
	ReceivedBytes, SentBytes, ReceivedPackets, SentPackets, DroppedIn, DroppedOut float64
}

// Pod holds the values of a pod's cgroup.
type Pod struct {
	UID   string
	Class cgroup.Class
	// Path is the group below the root of a hierarchy.
	Path string
	Use
	Pressure Pressures
	// StallShares holds the shares of the time since the previous measurement in which a task of the pod waited, from 0 to 1.
	StallShares StallShares
	// HasExclusiveCPUs means that a container runs on exclusive CPUs.
	HasExclusiveCPUs bool
	// DiskIO is the last sample of disk I/O; unknown unless sampling is enabled.
	DiskIO Known[DiskIORate]
	// Cycles is the last sample of cycles per instruction; unknown without a source.
	Cycles     Known[Cycles]
	Containers []Container
}

// Cycles is a sample of the cycles per instruction of a pod.
type Cycles struct {
	// At is the time of the sample.
	At             time.Time
	PerInstruction float64
}

// StallShares holds the stall share of each resource.
type StallShares struct {
	CPU, Memory, IO Known[units.Ratio]
}

// Container holds the values of the cgroup of a container or sandbox.
type Container struct {
	ID string
	// Path is the group below the root of a hierarchy.
	Path string
	Use
	// High is memory.high, math.MaxInt64 for none; unknown on cgroup v1.
	High Known[units.Bytes]
	// RunQueue is the last sample; unknown unless sampling is enabled.
	RunQueue Known[RunQueue]
}

// Use holds the resource use of a cgroup.
type Use struct {
	UsedCPU Known[units.MilliCPU]
	// Throttled is the share of enforcement periods in which the group exhausted its quota.
	Throttled Known[units.Ratio]
	Memory    Known[Memory]
	Limit     Known[cgroup.Bandwidth]
}

// Memory holds the memory use of a cgroup.
type Memory struct {
	Used, WorkingSet, RSS, Cache units.Bytes
	// Shared is shared memory and files in memory (tmpfs), which are part of Cache but cannot be dropped.
	Shared units.Bytes
}

// Unreclaimable returns the memory that becomes available to the node when the group ends: anonymous and shared memory. Page cache, which
// the working set includes, is part of the node's available memory before and after.
func (m Memory) Unreclaimable() units.Bytes { return m.RSS + m.Shared }

// Latest passes the last snapshot to other goroutines. It publishes copies, because the observer reuses its snapshot; the memory of a
// copy that was never loaded is reused too, so that a loop without readers produces no garbage. Load is safe for concurrent use with one
// publisher. The zero value has no snapshot.
type Latest struct {
	mu      sync.Mutex
	current *Snapshot
	shared  bool // current was loaded and must not change any more

	spare *Snapshot // used by the publisher only
}

// Publish copies a snapshot as the latest one.
func (l *Latest) Publish(s *Snapshot) {
	next := l.spare
	l.spare = nil

	if next == nil {
		next = &Snapshot{}
	}

	next.copyFrom(s)
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.shared {
		l.spare = l.current
	}

	l.current = next
	l.shared = false
}

// Load returns the latest snapshot, which never changes, or nil before the first.
func (l *Latest) Load() *Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.shared = true
	return l.current
}

// copyInto copies a list into existing memory if it fits.
func copyInto[T any](memory, from []T) []T { return append(memory[:0], from...) }

// copyFrom copies a snapshot into the memory of s.
func (s *Snapshot) copyFrom(source *Snapshot) {
	// The memory of containers is reused pod by pod, so that publishing allocates nothing.
	pods := s.Pods[:cap(s.Pods)]
	if len(pods) < len(source.Pods) {
		pods = append(pods, make([]Pod, len(source.Pods)-len(pods))...)
	}

	pods = pods[:len(source.Pods)]
	for i := range source.Pods {
		containers := copyInto(pods[i].Containers, source.Pods[i].Containers)
		pods[i] = source.Pods[i]
		pods[i].Containers = containers
	}

	disks := copyInto(s.Disks, source.Disks)
	interfaces := copyInto(s.Interfaces, source.Interfaces)
	zones := copyInto(s.Node.Zones, source.Node.Zones)
	problems := s.Problems
	*s = *source
	s.Pods = pods
	s.Disks = disks
	s.Interfaces = interfaces
	s.Node.Zones = zones

	if problems == nil {
		problems = map[string]string{}
	}

	clear(problems)
	maps.Copy(problems, source.Problems)
	s.Problems = problems
}
