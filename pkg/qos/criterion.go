// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/units"
)

// Criterion is the use by which victims are ordered when reclaimed capacity, priority and QoS class are equal; the largest use goes first.
// Its text appears in messages and audit records.
type Criterion string

// Criteria. Those of disks are rates per second; DiskWork also counts one operation per 64 KiB.
const (
	ByCPU            Criterion = "cpu"
	ByMemory         Criterion = "memory"
	ByDiskWork       Criterion = "disk operations"
	ByDiskReads      Criterion = "disk reads"
	ByDiskWrites     Criterion = "disk writes"
	ByDiskReadBytes  Criterion = "bytes read from disks"
	ByDiskWriteBytes Criterion = "bytes written to disks"
	// ByDiskWait is the share of time in which a task of the pod waits for disks. It shows that a pod uses disks, not how much, and
	// replaces disk counters that the kernel lacks.
	ByDiskWait Criterion = "time waiting for disks"
)

// minDiskWait is the smallest share of time waiting for disks that counts.
const minDiskWait = 0.05

// criterion returns the criterion for the victims of a rule: that of its metric, or the time waiting for disks where the kernel counts no
// disk use of pods and no pod shows any.
func (d decision) criterion(r *Rule) Criterion {
	metric := d.metric(r)
	c := metric.victimCriterion()
	if !metric.IsDisk() || interferenceResource(r.Metric) != NoResource {
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

// countsWrites reports whether the criterion includes writes.
func (c Criterion) countsWrites() bool {
	return c == ByDiskWork || c == ByDiskWrites || c == ByDiskWriteBytes
}

// resource returns the resource the criterion measures.
func (c Criterion) resource() units.Resource {
	switch c {
	case ByCPU:
		return units.CPU
	case ByMemory:
		return units.Memory
	case ByDiskWork, ByDiskReads, ByDiskWrites, ByDiskReadBytes, ByDiskWriteBytes, ByDiskWait:
	}

	return Disks
}

// value returns the pod's use in millicores, bytes, per second or as a share of time. It is meaningless if unmeasured.
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

// valueOf returns the pod's use and whether it is known.
func (c Criterion) valueOf(p *Pod, now time.Time, maxAge time.Duration) (float64, bool) {
	v := c.value(p)
	if c == ByDiskWait {
		return v, p.StalledDisks.fresh(now, maxAge)
	}

	_, ok := p.use(c.resource(), now, maxAge)
	return v, ok && v >= 0
}

// minimum returns the smallest use that makes a pod a victim. For disks it is a twentieth of the use of all pods, and at least what no
// disk notices. For CPU and memory any use counts, since the gap already excludes small users.
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

// suffix names the criterion where the metric alone does not.
func (c Criterion) suffix() string {
	if c.resource() == Disks {
		return " by " + string(c)
	}

	return ""
}

// describe formats a pod's use for messages.
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

		return fmt.Sprintf("waits %.1f %% of the time for disks; its disk use is unknown: %s", 100*v, why)

	case ByCPU, ByMemory, ByDiskWork:
	}

	return "uses " + formatAmount(c.resource(), v)
}
