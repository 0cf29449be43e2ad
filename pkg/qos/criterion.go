// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Criterion is what of their use victims are ordered by where elastic resources, priority and QoS class do not tell them apart: who has
// most of it goes first. Its text is for people and for records.
type Criterion string

// The criteria. Those of disks are by second; DiskWork counts an operation for each 64 KiB as well.
const (
	ByCPU            Criterion = "cpu"
	ByMemory         Criterion = "memory"
	ByDiskWork       Criterion = "disk operations"
	ByDiskReads      Criterion = "disk reads"
	ByDiskWrites     Criterion = "disk writes"
	ByDiskReadBytes  Criterion = "bytes read from disks"
	ByDiskWriteBytes Criterion = "bytes written to disks"
	// ByDiskWait is the share of time in which a task of the pod waits for disks. It says who has them at work and not with how much, and
	// stands in where the kernel does not count that.
	ByDiskWait Criterion = "time waiting for disks"
)

// minDiskWait is the share of time waiting for disks from which on it counts.
const minDiskWait = 0.05

// victimCriterion is what a rule's metric is about. Of a disk's busy time and of waiting for disks no pod's part is known: what is done to them
// causes both.
func (m Metric) victimCriterion() Criterion {
	switch m.victimResource() {
	case Memory:
		return ByMemory
	case CPU, NoResource:
		return ByCPU
	case Disks:
	}
	switch strings.TrimPrefix(strings.TrimPrefix(m.Name, "node_"), "pod_") {
	case "disk_reads_per_second", "disk_read_iops":
		return ByDiskReads
	case "disk_writes_per_second":
		return ByDiskWrites
	case "disk_read_bytes_per_second", "disk_read_kibps":
		return ByDiskReadBytes
	case "disk_write_bytes_per_second", "disk_write_kibps":
		return ByDiskWriteBytes
	}
	return ByDiskWork
}

// criterion is what the victims of a rule are ordered by: what its metric is about; and time waiting for disks where the kernel does not
// count what pods do to them, and none is seen to do anything.
func (d *decision) criterion(r *Rule) Criterion {
	metric := d.state.rules[r.Name].metric
	c := metric.victimCriterion()
	if metric.victimResource() != Disks || interferenceResource(r.Metric) != NoResource {
		return c
	}
	measured := false
	for i := range d.observation.Pods {
		p := &d.observation.Pods[i]
		if c.value(p) > 0 {
			return c
		}
		measured = measured || !p.UsedDisks.At.IsZero()
	}
	if n := &d.observation.Node; n.DiskUsageUnavailable != "" || n.DiskUsagePartial && measured && c.countsWrites() {
		return ByDiskWait
	}
	return c
}

// countsWrites tells whether writes count.
func (c Criterion) countsWrites() bool {
	return c == ByDiskWork || c == ByDiskWrites || c == ByDiskWriteBytes
}

// resource is what it is a figure of.
func (c Criterion) resource() Resource {
	switch c {
	case ByCPU:
		return CPU
	case ByMemory:
		return Memory
	case ByDiskWork, ByDiskReads, ByDiskWrites, ByDiskReadBytes, ByDiskWriteBytes, ByDiskWait:
	}
	return Disks
}

// value is a pod's figure, in millicores, bytes, by second or a share of time; it means nothing where it was not measured.
func (c Criterion) value(p *Pod) float64 {
	switch c {
	case ByCPU:
		return float64(p.UsedCPU.Value)
	case ByMemory:
		return float64(p.UsedMemory.Value)
	case ByDiskWork:
		return float64(p.UsedDisks.Value)
	case ByDiskReads:
		return p.DiskRates.Reads
	case ByDiskWrites:
		return p.DiskRates.Writes
	case ByDiskReadBytes:
		return p.DiskRates.ReadBytes
	case ByDiskWriteBytes:
		return p.DiskRates.WriteBytes
	case ByDiskWait:
		return float64(p.StalledDisks.Value)
	}
	return 0
}

// valueOf is a pod's figure, and whether it is known.
func (c Criterion) valueOf(p *Pod, now time.Time, maxAge time.Duration) (float64, bool) {
	v := c.value(p)
	if c == ByDiskWait {
		return v, p.StalledDisks.fresh(now, maxAge)
	}
	_, known := p.use(c.resource(), now, maxAge)
	return v, known && v >= 0
}

// minimum is the figure below which a pod is not the cause of what disks show: the twentieth of what all pods have, and work that no disk
// feels. Of cpu and memory it is the gap that says so, and whatever is more than nothing counts here.
func (c Criterion) minimum(o *Observation) float64 {
	if c.resource() != Disks {
		return math.SmallestNonzeroFloat64
	}
	if c == ByDiskWait {
		return minDiskWait
	}
	sum := 0.0
	for i := range o.Pods {
		sum += max(c.value(&o.Pods[i]), 0)
	}
	switch c {
	case ByDiskReadBytes, ByDiskWriteBytes:
		return max(minDiskShare*sum, minDiskWork*diskUnit)
	case ByCPU, ByMemory, ByDiskWork, ByDiskReads, ByDiskWrites, ByDiskWait:
	}
	return max(minDiskShare*sum, minDiskWork)
}

// suffix names it where the metric alone does not.
func (c Criterion) suffix() string {
	if c.resource() == Disks {
		return " by " + string(c)
	}
	return ""
}

// describe writes a pod's figure for people.
func (c Criterion) describe(v float64, n *Node) string {
	const mebi = 1 << 20
	switch c {
	case ByDiskReads:
		return fmt.Sprintf("reads %.0f times/s from disks", v)
	case ByDiskWrites:
		return fmt.Sprintf("writes %.0f times/s to disks", v)
	case ByDiskReadBytes:
		return fmt.Sprintf("reads %.1f MiB/s from disks", v/mebi)
	case ByDiskWriteBytes:
		return fmt.Sprintf("writes %.1f MiB/s to disks", v/mebi)
	case ByDiskWait:
		why := n.DiskUsageUnavailable
		if why == "" {
			why = "the kernel counts none of the pods' writes"
		}
		return fmt.Sprintf("waits %.1f %% of the time for disks, since what it does to them is not known: %s", 100*v, why)
	case ByCPU, ByMemory, ByDiskWork:
	}
	return "uses " + c.resource().format(v)
}
