// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"time"

	"crane.io/crane/pkg/units"
)

// Measurement is a value and the time it was measured. The zero value is unknown.
type Measurement[T units.MilliCPU | units.Bytes | units.Ratio | DiskWork] struct {
	Value T
	At    time.Time
}

// fresh reports whether the value was measured within maxAge of now, in either direction because clocks are set back.
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
	// Labels identify the series, as diskName does; they are not modified.
	Labels map[string]string
}

func (s Sample) fresh(now time.Time, maxAge time.Duration) bool {
	return !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) && absolute(now.Sub(s.At)) <= maxAge
}

// Observation is the measured state of a node.
type Observation struct {
	At   time.Time
	Node Node
	// Samples are keyed by metric name. A missing metric is unknown.
	Samples map[string][]Sample
	Pods    []Pod

	// derived holds the metrics that Decide computes, by name.
	derived map[string]derivedMetric
}

// derivedMetric holds samples, or the reason there are none.
type derivedMetric struct {
	samples []Sample
	reason  string
}

// samples returns the samples of a metric, or why there are none.
func (o *Observation) samples(metric string) (samples []Sample, why string) {
	if d, ok := o.derived[metric]; ok {
		return d.samples, d.reason
	}

	return o.Samples[metric], "the metric is missing"
}

// Node is the state of the node as a whole.
type Node struct {
	// CPUs and Memory are its capacity; 0 if unknown.
	CPUs   units.MilliCPU
	Memory units.Bytes
	// UsedCPU and UsedMemory are compared with the water marks.
	UsedCPU    Measurement[units.MilliCPU]
	UsedMemory Measurement[units.Bytes]
	// DiskUsageUnavailable is the reason the kernel does not count the disk use of pods; empty if it does or was not read.
	// DiskUsagePartial reports that writes of dirty pages are not counted.
	DiskUsageUnavailable string
	DiskUsagePartial     bool
	// Avoided reports that Crane's taint keeps new pods away.
	Avoided bool
}

func (n Node) capacity(r units.Resource) float64 {
	switch r {
	case units.CPU:
		return float64(max(n.CPUs, 0))
	case units.Memory:
		return float64(max(n.Memory, 0))
	case Disks, NoResource:
	}

	return 0
}

// used returns the share of the capacity in use.
func (n Node) used(r units.Resource, now time.Time, maxAge time.Duration) (units.Ratio, bool) {
	capacity := n.capacity(r)
	if capacity <= 0 {
		return 0, false
	}

	if r == units.CPU {
		return units.Ratio(float64(n.UsedCPU.Value) / capacity), n.UsedCPU.fresh(now, maxAge)
	}

	return units.Ratio(float64(n.UsedMemory.Value) / capacity), n.UsedMemory.fresh(now, maxAge)
}

// Class is a pod's QoS class.
type Class string

// QoS classes.
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
	// Elastic reports that the pod runs on reclaimed capacity and may lose it.
	Elastic bool
	// HoldsCPU and HoldsMemory report which reclaimed resources the pod requests.
	HoldsCPU, HoldsMemory bool
	Started               time.Time
	// Terminating reports that the pod is terminating, Grace its grace period.
	Terminating bool
	Grace       time.Duration
	// ExemptReason is the reason the pod is never evicted, as for a static pod; empty if it may be.
	ExemptReason string
	// Allowed lists the names of the actions that may be taken on the pod.
	Allowed []string

	// SensitiveReason is the reason the pod counts as latency-sensitive; empty if it does not, and then no pod is throttled to protect it.
	SensitiveReason string
	// ExclusiveCPUs reports that the pod runs on CPUs of its own and does not compete for CPU.
	ExclusiveCPUs bool
	// Labels are the labels of its series; they are not modified.
	Labels map[string]string

	// UsedCPU is the use over the last interval. UsedMemory is the memory that its eviction makes available, which excludes page cache as the
	// node's use does. UsedDisks is the disk use, which is sampled less often.
	UsedCPU    Measurement[units.MilliCPU]
	UsedMemory Measurement[units.Bytes]
	UsedDisks  Measurement[DiskWork]
	// DiskRates are the components of UsedDisks.
	DiskRates DiskRates
	// StalledCPU, StalledMemory and StalledDisks are the shares of the last interval, 0 to 1, in which a task of the pod waited for the
	// resource for any reason. Throttled is the share of its periods that its own limit cut short.
	StalledCPU, StalledMemory, StalledDisks Measurement[units.Ratio]
	Throttled                               Measurement[units.Ratio]
	Containers                              []Container
}

// holds reports whether the pod requests a reclaimed resource.
func (p *Pod) holds(r units.Resource) bool {
	return r == units.CPU && p.HoldsCPU || r == units.Memory && p.HoldsMemory
}

// use returns the pod's use of a resource and whether it is known.
func (p *Pod) use(r units.Resource, now time.Time, maxAge time.Duration) (float64, bool) {
	switch r {
	case units.CPU:
		return float64(p.UsedCPU.Value), p.UsedCPU.fresh(now, maxAge)
	case units.Memory:
		return float64(p.UsedMemory.Value), p.UsedMemory.fresh(now, maxAge)
	case Disks:
		return float64(p.UsedDisks.Value), p.UsedDisks.fresh(now, maxAge)
	case NoResource:
	}

	return 0, false
}

// knownUse returns the pod's use of a resource; 0 if it is unknown.
func (p *Pod) knownUse(r units.Resource, now time.Time, maxAge time.Duration) float64 {
	if use, ok := p.use(r, now, maxAge); ok {
		return use
	}

	return 0
}

// stalled returns the share of time the pod waits for a resource.
func (p *Pod) stalled(r units.Resource) Measurement[units.Ratio] {
	switch r {
	case units.CPU:
		return p.StalledCPU
	case units.Memory:
		return p.StalledMemory
	case Disks:
		return p.StalledDisks
	case NoResource:
	}

	return Measurement[units.Ratio]{}
}

// measuredAt returns the time the use of a resource was measured.
func (p *Pod) measuredAt(r units.Resource) time.Time {
	switch r {
	case units.CPU:
		return p.UsedCPU.At
	case units.Memory:
		return p.UsedMemory.At
	case Disks:
		return p.UsedDisks.At
	case NoResource:
	}

	return time.Time{}
}

// DiskWork is a disk load per second: operations, plus one for each 64 KiB. Rotating disks and cloud disks are limited by operations, all
// disks by bytes. Their exact ratio depends on the disk and does not matter for comparing pods (the linear model of
// Documentation/admin-guide/cgroup-v2.rst, io.cost.model).
type DiskWork float64

// diskUnit is the number of bytes that count as one operation.
const diskUnit = 64 << 10

// DiskRates is a disk load per second.
type DiskRates struct{ Reads, Writes, ReadBytes, WriteBytes float64 }

// Work returns the combined load.
func (r DiskRates) Work() DiskWork {
	return DiskWork(r.Reads + r.Writes + (r.ReadBytes+r.WriteBytes)/diskUnit)
}

// Quota is a CPU limit in force, in millicores. 0 means unknown.
type Quota units.MilliCPU

// Unlimited means no limit.
const Unlimited Quota = math.MaxInt64

// Container is a running container of a pod.
type Container struct {
	ID, Name string
	// Request and Limit are those of the pod's spec; 0 for none.
	Request, Limit units.MilliCPU
	// Quota is the limit in force; 0 if it could not be read.
	Quota   Quota
	UsedCPU Measurement[units.MilliCPU]
	// MinQuota is the least quota that the kernel accepts in the container's period; 0 for that of the usual period.
	MinQuota units.MilliCPU
	// RequestMemory and LimitMemory are those of the pod's spec; 0 for none.
	RequestMemory, LimitMemory units.Bytes
	// MemoryHigh is the memory limit in force; 0 if it could not be read or the kernel has none.
	MemoryHigh MemoryHigh
	// MemoryUsage is all its memory, WorkingSet the memory without unused page cache.
	MemoryUsage, WorkingSet Measurement[units.Bytes]
}
