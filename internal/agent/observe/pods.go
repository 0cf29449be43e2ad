// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/units"
)

// cpuCounters holds a group's counters of the previous measurement.
type cpuCounters struct {
	cpu                time.Duration
	periods, throttled uint64
	measurement        uint64
}

// stallTotals holds the stall times of a pod for CPU, memory and disks in the previous measurement.
type stallTotals struct {
	totals      [3]time.Duration
	measurement uint64
}

func (o *Observer) collectPods() {
	s := &o.snapshot
	o.recordProblem("pods", o.tree.Scan())

	// The reads take some milliseconds; all files of a group are read together, so that its rates cover the same time.
	o.recordProblem("pods", o.tree.Read(cgroup.CPU|cgroup.Quota|cgroup.Memory|cgroup.Pressure, cgroup.CPU|cgroup.Quota|cgroup.Memory|cgroup.High))

	pods := o.tree.Pods()
	// Reuse the slices of containers.
	if cap(s.Pods) < len(pods) {
		s.Pods = append(s.Pods[:cap(s.Pods)], make([]Pod, len(pods)-cap(s.Pods))...)
	}

	s.Pods = s.Pods[:len(pods)]
	for i, p := range pods {
		out := &s.Pods[i]
		out.UID = p.UID
		out.Class = p.Class
		out.Path = p.Path
		out.Cycles = o.readCycles(p.UID)

		out.Use = o.computeUse(p.Path, &p.Stat)
		out.Pressure = Pressures{}
		if p.Stat.Has&cgroup.Pressure != 0 {
			stalled := &p.Stat.Stalled
			out.Pressure = Pressures{CPU: known(stalled.CPU), Memory: known(stalled.Memory), IO: known(stalled.IO)}
		}

		out.StallShares = o.computeStalls(p.Path, &out.Pressure)
		out.Containers = out.Containers[:0]
		for _, c := range p.Containers {
			seen := Container{ID: c.ID, Path: c.Path, Use: o.computeUse(c.Path, &c.Stat)}
			if c.Stat.Has&cgroup.High != 0 {
				seen.High = known(c.Stat.High)
			}

			out.Containers = append(out.Containers, seen)
		}
	}

	for path, c := range o.counters {
		if c.measurement != o.measurement {
			delete(o.counters, path)
		}
	}

	for path, w := range o.stallTimes {
		if w.measurement != o.measurement {
			delete(o.stallTimes, path)
		}
	}
}

// SetCyclesSource sets the source of cycles per instruction by pod UID. It is called at every measurement.
func (o *Observer) SetCyclesSource(source func(uid string) (Cycles, bool)) { o.cyclesSource = source }

func (o *Observer) readCycles(uid string) (k Known[Cycles]) {
	if o.cyclesSource != nil {
		k.Value, k.OK = o.cyclesSource(uid)
	}

	return k
}

// computeStalls returns the stall shares since the previous measurement. The kernel's own averages cover ten seconds or more.
func (o *Observer) computeStalls(path string, p *Pressures) StallShares {
	if !p.CPU.OK || !p.Memory.OK || !p.IO.OK {
		return StallShares{} // The next measurement has no previous values.
	}

	now := stallTotals{[...]time.Duration{p.CPU.Value.Some.Total, p.Memory.Value.Some.Total, p.IO.Value.Some.Total}, o.measurement}
	last := o.stallTimes[path]
	if last == nil {
		o.stallTimes[path] = &stallTotals{now.totals, now.measurement} // &now would escape to the heap in every measurement.
		return StallShares{}
	}

	var shares [len(now.totals)]Known[units.Ratio]
	for i := range shares {
		if span := o.snapshot.Span; span > 0 && now.totals[i] >= last.totals[i] {
			shares[i] = known(units.Ratio(min(float64(now.totals[i]-last.totals[i])/float64(span), 1)))
		}
	}

	*last = now
	return StallShares{CPU: shares[0], Memory: shares[1], IO: shares[2]}
}

// computeUse computes the rates of a group.
func (o *Observer) computeUse(path string, now *cgroup.Stat) Use {
	var u Use
	if now.Has&cgroup.Quota != 0 {
		u.Limit = known(now.Limit)
	}

	if now.Has&cgroup.Memory != 0 {
		u.Memory = known(Memory{
			Used:       now.Used,
			WorkingSet: now.WorkingSet,
			RSS:        now.RSS,
			Cache:      now.Cache,
			Shared:     now.Shared,
		})
	}

	if now.Has&cgroup.CPU == 0 {
		return u // The next measurement has no previous counters.
	}

	last := o.counters[path]
	if last == nil {
		o.counters[path] = &cpuCounters{
			cpu:         now.CPUTime,
			periods:     now.Periods,
			throttled:   now.Throttled,
			measurement: o.measurement,
		}

		return u
	}

	span := o.snapshot.Span
	if span > 0 && now.CPUTime >= last.cpu {
		u.UsedCPU = known(units.MilliCPU(1000*float64(now.CPUTime-last.cpu)/float64(span) + 0.5))
	}

	if now.Periods >= last.periods && now.Throttled >= last.throttled {
		share := 0.0
		if ran := now.Periods - last.periods; ran > 0 {
			share = min(float64(now.Throttled-last.throttled)/float64(ran), 1)
		}

		u.Throttled = known(units.Ratio(share))
	}

	*last = cpuCounters{
		cpu:         now.CPUTime,
		periods:     now.Periods,
		throttled:   now.Throttled,
		measurement: o.measurement,
	}

	return u
}

// Supported reports whether the host has PSI.
func (p Pressures) Supported() bool { return p.CPU.OK || p.Memory.OK || p.IO.OK }

// Each calls f for every known pressure with the name of its resource.
func (p Pressures) Each(f func(resource string, v host.Pressure)) {
	if p.CPU.OK {
		f("cpu", p.CPU.Value)
	}
	if p.Memory.OK {
		f("memory", p.Memory.Value)
	}
	if p.IO.OK {
		f("io", p.IO.Value)
	}
}

const (
	// maxZones limits the NUMA nodes that are read.
	maxZones = 64
	// measurementsPerZoneList is the number of measurements after which NUMA nodes are listed again, because memory may be hot-plugged.
	measurementsPerZoneList = 60
)

// collectZones reads the memory of every NUMA node.
func (o *Observer) collectZones() {
	n := &o.snapshot.Node
	if o.measurement%measurementsPerZoneList == 1 {
		if err := n.listZones(o.hostFiles); err != nil {
			o.recordProblem("numa", err)
		}
	}

	for i := range n.Zones {
		z := &n.Zones[i]
		z.Memory = readFile(o, "numa", &z.file, host.ParseZoneMeminfo)
	}
}

// listZones adds new NUMA nodes and removes those that are gone.
func (n *Node) listZones(files hostFiles) error {
	ids, err := files.reader.ListZones(files.root)
	if err != nil {
		return err
	}

	ids = ids[:min(len(ids), maxZones)]
	n.Zones = slices.DeleteFunc(n.Zones, func(z Zone) bool {
		removed := !slices.Contains(ids, z.ID)
		if removed {
			z.file.Close()
		}

		return removed
	})

	for _, id := range ids {
		if !slices.ContainsFunc(n.Zones, func(z Zone) bool { return z.ID == id }) {
			n.Zones = append(n.Zones, Zone{ID: id, file: host.NewFile(files.root.Path(host.ZonesDir, "node"+strconv.Itoa(id), "meminfo"))})
		}
	}

	slices.SortFunc(n.Zones, func(a, b Zone) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

func (n *Node) closeZones() {
	for i := range n.Zones {
		n.Zones[i].file.Close()
	}
}
