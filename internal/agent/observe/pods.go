// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/series"
)

// counters are a group's at the last look.
type counters struct {
	cpu                time.Duration
	periods, throttled uint64
	tick               uint64
}

// waited are the times that tasks of a pod had waited for cpu, memory and disks at the last look.
type waited struct {
	total [3]time.Duration
	tick  uint64
}

func (o *Observer) lookPods() {
	s := &o.snapshot
	o.problem("pods", o.tree.Scan())
	// The reads below take some milliseconds; those of one group are together, so that its rates are of its own span.
	o.problem("pods", o.tree.Read(cgroup.CPU|cgroup.Quota|cgroup.Memory|cgroup.Pressure, cgroup.CPU|cgroup.Quota|cgroup.Memory|cgroup.High))
	pods := o.tree.Pods()
	// Slices of containers are used again.
	if cap(s.Pods) < len(pods) {
		s.Pods = append(s.Pods[:cap(s.Pods)], make([]Pod, len(pods)-cap(s.Pods))...)
	}
	s.Pods = s.Pods[:len(pods)]
	for i, p := range pods {
		out := &s.Pods[i]
		out.UID, out.Class, out.Path = p.UID, p.Class, p.Path
		out.Cycles = o.cycles(p.UID)
		out.Use = o.use(p.Path, &p.Stat)
		out.Pressure = Pressures{}
		if p.Stat.Has&cgroup.Pressure != 0 {
			stalled := &p.Stat.Stalled
			out.Pressure = Pressures{CPU: known(stalled.CPU), Memory: known(stalled.Memory), IO: known(stalled.IO)}
		}
		out.Stalled = o.stalls(p.Path, &out.Pressure)
		out.Containers = out.Containers[:0]
		for _, c := range p.Containers {
			seen := Container{ID: c.ID, Path: c.Path, Use: o.use(c.Path, &c.Stat)}
			if c.Stat.Has&cgroup.High != 0 {
				seen.High = known(c.Stat.High)
			}
			out.Containers = append(out.Containers, seen)
		}
	}
	for path, c := range o.groups {
		if c.tick != o.tick {
			delete(o.groups, path)
		}
	}
	for path, w := range o.waited {
		if w.tick != o.tick {
			delete(o.waited, path)
		}
	}
}

// CyclesCounted names who counts cycles and instructions of pods: of returns the last sample of one, by its UID. It is called at each look.
func (o *Observer) CyclesCounted(of func(uid string) (Cycles, bool)) { o.counted = of }

func (o *Observer) cycles(uid string) (k Known[Cycles]) {
	if o.counted != nil {
		k.Value, k.OK = o.counted(uid)
	}
	return k
}

// stalls makes shares of the times that a pod's tasks have waited. The averages of the kernel are of ten seconds and more; these are of
// the time since the last look.
func (o *Observer) stalls(path string, p *Pressures) Stalls {
	if !p.CPU.OK || !p.Memory.OK || !p.IO.OK {
		return Stalls{} // The next look has nothing to compare with.
	}
	now := waited{[...]time.Duration{p.CPU.Value.Some.Total, p.Memory.Value.Some.Total, p.IO.Value.Some.Total}, o.tick}
	last := o.waited[path]
	if last == nil {
		o.waited[path] = &waited{now.total, now.tick} // not &now, which would be on the heap each time
		return Stalls{}
	}
	var shares [len(now.total)]Known[series.Ratio]
	for i := range shares {
		if span := o.snapshot.Span; span > 0 && now.total[i] >= last.total[i] {
			shares[i] = known(series.Ratio(min(float64(now.total[i]-last.total[i])/float64(span), 1)))
		}
	}
	*last = now
	return Stalls{CPU: shares[0], Memory: shares[1], IO: shares[2]}
}

// use makes rates of a group's counters.
func (o *Observer) use(path string, now *cgroup.Stat) Use {
	var u Use
	if now.Has&cgroup.Quota != 0 {
		u.Limit = known(now.Limit)
	}
	if now.Has&cgroup.Memory != 0 {
		u.Memory = known(Memory{Used: now.Used, WorkingSet: now.WorkingSet, RSS: now.RSS, Cache: now.Cache})
	}
	if now.Has&cgroup.CPU == 0 {
		return u // The next look has no counter to compare with.
	}
	last := o.groups[path]
	if last == nil {
		o.groups[path] = &counters{cpu: now.CPUTime, periods: now.Periods, throttled: now.Throttled, tick: o.tick}
		return u
	}
	span := o.snapshot.Span
	if span > 0 && now.CPUTime >= last.cpu {
		u.UsedCPU = known(series.MilliCPU(1000*float64(now.CPUTime-last.cpu)/float64(span) + 0.5))
	}
	if now.Periods >= last.periods && now.Throttled >= last.throttled {
		share := 0.0
		if ran := now.Periods - last.periods; ran > 0 {
			share = min(float64(now.Throttled-last.throttled)/float64(ran), 1)
		}
		u.Throttled = known(series.Ratio(share))
	}
	*last = counters{cpu: now.CPUTime, periods: now.Periods, throttled: now.Throttled, tick: o.tick}
	return u
}

// Supported tells whether the host has pressures: kernels without PSI have none.
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
