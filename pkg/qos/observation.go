// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"time"

	"crane.io/crane/pkg/series"
)

// Measurement is a value and when it was measured. The zero value is unknown.
type Measurement[T series.MilliCPU | series.Bytes | series.Ratio | DiskWork] struct {
	Value T
	At    time.Time
}

// fresh tells whether a value was measured and is not older than maxAge, nor from a future that a clock that was set back leaves.
func (m Measurement[T]) fresh(now time.Time, maxAge time.Duration) bool {
	return !m.At.IsZero() && absolute(now.Sub(m.At)) <= maxAge && m.Value >= 0
}

func absolute(d time.Duration) time.Duration {
	if d < 0 {
		return -d
	}
	return d
}

// Sample is a value of a metric.
type Sample struct {
	Value float64
	At    time.Time
	// Labels tell the series of a metric apart, such as diskName; they are not changed.
	Labels map[string]string
}

func (s Sample) fresh(now time.Time, maxAge time.Duration) bool {
	return !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) && absolute(now.Sub(s.At)) <= maxAge
}

// Observation is what is known of a node at a time.
type Observation struct {
	At   time.Time
	Node Node
	// Samples are by the name of the metric. A metric that is not there is unknown.
	Samples map[string][]Sample
	Pods    []Pod

	// derived are by the name of a metric that Decide makes of the others.
	derived map[string]derivedMetric
}

// derivedMetric are the samples of a metric, or why there are none.
type derivedMetric struct {
	samples []Sample
	reason  string
}

// samples returns those of a metric, or why there are none.
func (o *Observation) samples(metric string) (samples []Sample, why string) {
	if d, ok := o.derived[metric]; ok {
		return d.samples, d.reason
	}
	return o.Samples[metric], "the metric is missing"
}

// Node is the node as a whole.
type Node struct {
	// CPUs and Memory are its capacity; 0 where it is not known.
	CPUs   series.MilliCPU
	Memory series.Bytes
	// UsedCPU and UsedMemory are what water marks are compared with.
	UsedCPU    Measurement[series.MilliCPU]
	UsedMemory Measurement[series.Bytes]
	// DiskUsageUnavailable says why the kernel does not tell what any pod does to disks; empty where it does, or nobody has asked it.
	// DiskUsagePartial tells that it counts what is written later as nobody's.
	DiskUsageUnavailable string
	DiskUsagePartial     bool
	// Avoided tells that new pods are kept away by a taint of ours.
	Avoided bool
}

func (n Node) capacity(r Resource) float64 {
	switch r {
	case CPU:
		return float64(max(n.CPUs, 0))
	case Memory:
		return float64(max(n.Memory, 0))
	case Disks, NoResource:
	}
	return 0
}

// used is the present use of a resource as a share of the capacity.
func (n Node) used(r Resource, now time.Time, maxAge time.Duration) (series.Ratio, bool) {
	capacity := n.capacity(r)
	if capacity <= 0 {
		return 0, false
	}
	if r == CPU {
		return series.Ratio(float64(n.UsedCPU.Value) / capacity), n.UsedCPU.fresh(now, maxAge)
	}
	return series.Ratio(float64(n.UsedMemory.Value) / capacity), n.UsedMemory.fresh(now, maxAge)
}

// Class is a pod's QoS class.
type Class string

// The classes.
const (
	Guaranteed Class = "Guaranteed"
	Burstable  Class = "Burstable"
	BestEffort Class = "BestEffort"
)

// Pod is a pod on the node.
type Pod struct {
	UID, Namespace, Name string
	// Priority is spec.priority.
	Priority int32
	Class    Class
	// Elastic tells that it runs on reclaimed capacity and may lose it.
	Elastic bool
	// HoldsCPU and HoldsMemory tell of which resource it holds some of that capacity.
	HoldsCPU, HoldsMemory bool
	Started               time.Time
	// Terminating tells that it is ending already, Grace how long it may take.
	Terminating bool
	Grace       time.Duration
	// ExemptReason says why it is never evicted, as for a static pod; empty where it may be.
	ExemptReason string
	// Allowed are the names of the actions that may be taken on it.
	Allowed []string

	// SensitiveReason says by what it is known to be latency-sensitive, empty where it is not: then nobody is held down for its sake.
	SensitiveReason string
	// ExclusiveCPUs tells that it runs on CPUs that nobody else has: it does not compete for them.
	ExclusiveCPUs bool
	// Labels are those of its series; they are not changed.
	Labels map[string]string

	// UsedCPU is the use over the last interval, UsedMemory the working set, UsedDisks what it does to disks, which is sampled more seldom.
	UsedCPU    Measurement[series.MilliCPU]
	UsedMemory Measurement[series.Bytes]
	UsedDisks  Measurement[DiskWork]
	// DiskRates are what UsedDisks is made of.
	DiskRates DiskRates
	// StalledCPU, StalledMemory and StalledDisks are the shares of the last interval, 0 to 1, in which a task of the pod waited for the
	// resource, whatever for; Throttled is the share of the periods in which it ran that its own limit ended early.
	StalledCPU, StalledMemory, StalledDisks Measurement[series.Ratio]
	Throttled                               Measurement[series.Ratio]
	Containers                              []Container
}

// holds tells whether it holds some of the reclaimed capacity of a resource.
func (p *Pod) holds(r Resource) bool { return r == CPU && p.HoldsCPU || r == Memory && p.HoldsMemory }

// use is what the pod uses of a resource.
func (p *Pod) use(r Resource, now time.Time, maxAge time.Duration) (float64, bool) {
	switch r {
	case CPU:
		return float64(p.UsedCPU.Value), p.UsedCPU.fresh(now, maxAge)
	case Memory:
		return float64(p.UsedMemory.Value), p.UsedMemory.fresh(now, maxAge)
	case Disks:
		return float64(p.UsedDisks.Value), p.UsedDisks.fresh(now, maxAge)
	case NoResource:
	}
	return 0, false
}

// stalled is how long the pod waits for a resource.
func (p *Pod) stalled(r Resource) Measurement[series.Ratio] {
	switch r {
	case CPU:
		return p.StalledCPU
	case Memory:
		return p.StalledMemory
	case Disks:
		return p.StalledDisks
	case NoResource:
	}
	return Measurement[series.Ratio]{}
}

// measuredAt is when the use of a resource was measured.
func (p *Pod) measuredAt(r Resource) time.Time {
	switch r {
	case CPU:
		return p.UsedCPU.At
	case Memory:
		return p.UsedMemory.At
	case Disks:
		return p.UsedDisks.At
	case NoResource:
	}
	return time.Time{}
}

// DiskWork is what somebody has disks do, by second: operations, and one more for each 64 KiB. Disks are busy with either: those that turn
// and those of clouds with operations, all of them with bytes; how much of the one is worth how much of the other depends on the disk, and
// is of no consequence where one pod is compared with another (the linear model of Documentation/admin-guide/cgroup-v2.rst, io.cost.model).
type DiskWork float64

// diskUnit are the bytes that count as one operation.
const diskUnit = 64 << 10

// DiskRates are what somebody has disks do, by second.
type DiskRates struct{ Reads, Writes, ReadBytes, WriteBytes float64 }

// Work is all of it together.
func (r DiskRates) Work() DiskWork {
	return DiskWork(r.Reads + r.Writes + (r.ReadBytes+r.WriteBytes)/diskUnit)
}

// Quota is a limit of cpu in force. Unlimited is the largest.
type Quota series.MilliCPU

// Unlimited is no limit.
const Unlimited Quota = math.MaxInt64

// Container is a container of a pod that runs.
type Container struct {
	ID, Name string
	// Request and Limit are those of the pod's spec; 0 for none.
	Request, Limit series.MilliCPU
	// Quota is the limit in force. It is 0, unknown, where it could not be read.
	Quota   Quota
	UsedCPU Measurement[series.MilliCPU]
	// RequestMemory and LimitMemory are those of the pod's spec; 0 for none.
	RequestMemory, LimitMemory series.Bytes
	// MemoryHigh is the limit of memory in force; 0, unknown, where it could not be read or the kernel has none.
	MemoryHigh MemoryHigh
	// MemoryUsage is all that it holds, WorkingSet that without files that were not used lately.
	MemoryUsage, WorkingSet Measurement[series.Bytes]
}
