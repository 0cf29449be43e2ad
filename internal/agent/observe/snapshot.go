// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/series"
)

// Known is a value that may be unknown.
type Known[T any] struct {
	Value T
	OK    bool
}

func known[T any](v T) Known[T] { return Known[T]{Value: v, OK: true} }

// Snapshot is what one look saw. The observer's own is valid until the next; Latest has copies that last.
type Snapshot struct {
	At time.Time
	// Span is the time that rates are of; 0 at the first look, which has none.
	Span       time.Duration
	Node       Node
	Disks      []Disk
	Interfaces []Interface
	Pods       []Pod
	// Problems are what could not be read, by what it is of.
	Problems map[string]string
}

// Node is the node as a whole.
type Node struct {
	// CPUs are those online.
	CPUs     Known[int]
	UsedCPU  Known[series.MilliCPU]
	Memory   Known[host.Memory]
	Load     Known[host.Load]
	Pressure Pressures
	// ExclusiveIdle is what is idle of the CPUs that belong to containers alone; unknown where nobody gives CPUs to containers.
	ExclusiveIdle Known[series.MilliCPU]
	// DiskIOUnsupported says why the kernel does not tell what pods do to disks, DiskIOPartial that it counts what is written later as nobody's;
	// neither is said unless somebody asks for it.
	DiskIOUnsupported string
	DiskIOPartial     bool
	// Zones are the NUMA nodes, by number, which may have gaps; there are none where the kernel has no NUMA.
	Zones []Zone
}

// Zone is a NUMA node.
type Zone struct {
	ID     int
	Memory Known[host.ZoneMemory]

	file  host.File
	round uint64
}

// Pressures are by resource.
type Pressures struct {
	CPU, Memory, IO Known[host.Pressure]
}

// Disk is a whole disk, not a partition.
type Disk struct {
	Name string
	Rate Known[DiskRate]

	last  host.Disk
	round uint64
}

// DiskRate is by second.
type DiskRate struct {
	Reads, Writes, ReadBytes, WriteBytes float64
	// Busy is the share of time with a request in progress, 0 to 1.
	Busy series.Ratio
}

// Interface is a network interface of the host.
type Interface struct {
	Name string
	Rate Known[InterfaceRate]

	last  host.Interface
	round uint64
}

// InterfaceRate is by second.
type InterfaceRate struct {
	ReceivedBytes, SentBytes, ReceivedPackets, SentPackets, DroppedIn, DroppedOut float64
}

// Pod is a pod's own cgroup.
type Pod struct {
	UID   string
	Class cgroup.Class
	// Path is the group below a hierarchy's root.
	Path string
	Use
	Pressure Pressures
	// StallShares are the shares of the time since the last look in which a task of the pod waited, 0 to 1.
	StallShares StallShares
	// HasExclusiveCPUs tells that a container of it runs on CPUs that belong to containers alone.
	HasExclusiveCPUs bool
	// DiskIO is the last sample of what it does to disks; unknown unless somebody asks for it.
	DiskIO Known[DiskIORate]
	// Cycles is the last sample of how many cycles it needs for an instruction; unknown unless somebody counts them.
	Cycles     Known[Cycles]
	Containers []Container
}

// Cycles are those that a pod needs for an instruction.
type Cycles struct {
	// At is when they were counted last.
	At             time.Time
	PerInstruction float64
}

// StallShares are by resource.
type StallShares struct {
	CPU, Memory, IO Known[series.Ratio]
}

// Container is a container's cgroup, or the sandbox's.
type Container struct {
	ID string
	// Path is the group below a hierarchy's root.
	Path string
	Use
	// High is memory.high, math.MaxInt64 for none; unknown on cgroup v1.
	High Known[series.Bytes]
	// RunQueue is the last sample of it; unknown unless somebody asks for it.
	RunQueue Known[RunQueue]
}

// Use is what a cgroup uses.
type Use struct {
	UsedCPU Known[series.MilliCPU]
	// Throttled is the share of the periods in which it ran that it had used up its quota before the end.
	Throttled Known[series.Ratio]
	Memory    Known[Memory]
	Limit     Known[cgroup.Bandwidth]
}

// Memory is the memory of a cgroup.
type Memory struct {
	Used, WorkingSet, RSS, Cache series.Bytes
}
