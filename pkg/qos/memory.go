// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// High is a limit of memory in force: what is above it is reclaimed, and who grows above it sleeps; nobody is killed for it. NoHigh is
// the largest, and 0 unknown.
type High series.Bytes

// NoHigh is no limit.
const NoHigh High = math.MaxInt64

// MemoryThrottling takes memory from pods: files that can be read again at first, and room to grow.
type MemoryThrottling struct {
	// Reclaim has all of it dropped at once, where otherwise half of it is at each measurement.
	Reclaim bool
}

// MemoryThrottle is a change of a container's limit of memory.
type MemoryThrottle struct {
	Pod                      PodRef
	ContainerID, ContainerOf string
	From, To                 High
	// Original is what the limit was before anything was taken.
	Original High
	// Frees is what has to be dropped for it; 0 where only room to grow is taken, and negative where room is given back.
	Frees series.Bytes
	// Reclaim is what is to be dropped at once, before the limit falls.
	Reclaim series.Bytes
	Rule    string
	Why     string
}

const (
	// setMargin is how far above its working set a container's limit stays, so that what it uses now does not stall: only what it has
	// not used lately goes, and growth. 5 % are some seconds of growth of a program that doubles in a minute.
	setMargin = 0.05
	// leastHigh is the least limit: a shell needs some MiB.
	leastHigh High = 16 << 20
	// leastStep is the share of a limit below which a step is not worth a write.
	leastStep = 0.02
	// raiseStep is the share of a limit by which it is raised.
	raiseStep = 0.1
	// stallMost is the share of time stalled for memory from which on nothing more is taken from a pod.
	stallMost series.Ratio = 0.25
	// highRounding is what the kernel may take off a limit: it counts in pages, of 64 KiB at most.
	highRounding High = 64 << 10
)

// String is a limit in MiB.
func (h High) String() string {
	switch {
	case h == NoHigh:
		return "no limit"
	case h <= 0:
		return "unknown"
	}
	return fmt.Sprintf("%.0f MiB", float64(h)/(1<<20))
}

// takes tells whether an action takes a resource from pods.
func (a *Action) takes(r Resource) bool {
	if r == Memory {
		return a.ThrottleMemory != nil
	}
	return a.Throttle != nil
}

// throttleMemory plans the steps of a rule about memory that fires, in victim order: files are dropped, of one container after the other,
// until what is dropped closes the gap; and one container that has none to drop is kept from growing. The next measurement decides on; so
// it does after the first one that drops files where the metric is no amount of memory.
func (d *decision) throttleMemory(r *Rule, f *Finding, gap float64, quantified bool) []MemoryThrottle {
	if r.Action.ThrottleMemory == nil || d.s.rules[r.Name].metric.victims() != Memory {
		return nil
	}
	var out []MemoryThrottle
	left, unmeasured, done, kept := gap, 0, 0, false
	for _, p := range d.victims(r, f, ByMemory) {
		if p.Terminating || d.stalls(p, r) {
			continue
		}
		for i := range p.Containers {
			c := &p.Containers[i]
			switch {
			case d.changed[aLimit{Memory, c.ID}]:
				continue
			case !c.memoryKnown(d.o.At, r.MaxAge):
				unmeasured++
				continue
			}
			step, ok := d.squeeze(r, p, c)
			switch {
			case !ok:
				done++
				continue
			case step.Frees == 0 && kept:
				continue
			}
			out = append(out, step)
			kept = kept || step.Frees == 0
			if left -= float64(step.Frees); step.Frees > 0 && (left <= 0 || !quantified) {
				return out
			}
		}
	}
	if len(out) == 0 && f.Why == "" {
		f.Why = fmt.Sprintf("no memory to throttle: %d containers have nothing above what they use or request, %d are not measured", done, unmeasured)
	}
	return out
}

// squeeze is the next step of a container's memory; false where nothing is left to be taken.
func (d *decision) squeeze(r *Rule, p *Pod, c *Container) (MemoryThrottle, bool) {
	to, frees, reclaim := c.lowerHigh()
	if to == c.High {
		return MemoryThrottle{}, false
	}
	step := MemoryThrottle{
		Pod: p.ref(), ContainerID: c.ID, ContainerOf: c.Name, From: c.High, To: to, Original: c.High, Frees: frees, Rule: r.Name,
		Why: fmt.Sprintf("holds %s, of which %s in use; %s", High(c.HeldMemory.Value), High(c.WorkingSet.Value), p.why(d.o.At)),
	}
	if k := d.s.highs[c.ID]; k != nil {
		step.Original = k.Original
	}
	if r.Action.ThrottleMemory.Reclaim {
		step.Reclaim = reclaim
	}
	return step, true
}

// stalls tells whether a pod waits for memory so much that nothing more is taken from it. Where a pod is interfered with, everybody waits
// for memory, who grows as well.
func (d *decision) stalls(p *Pod, r *Rule) bool {
	return d.interfered(r) == nil && p.StalledMemory.fresh(d.o.At, r.MaxAge) && p.StalledMemory.Value > stallMost
}

// memoryKnown tells whether a container's limit of memory and what it holds are known.
func (c *Container) memoryKnown(now time.Time, maxAge time.Duration) bool {
	return c.High > 0 && c.HeldMemory.fresh(now, maxAge) && c.WorkingSet.fresh(now, maxAge)
}

// lowerHigh is the next limit of a container, the present one where nothing is left to be taken, what is dropped for it, and all that can
// be dropped.
func (c *Container) lowerHigh() (to High, frees, reclaim series.Bytes) {
	used := High(float64(c.WorkingSet.Value) * (1 + setMargin))
	floor := max(High(c.RequestMemory), used, leastHigh)
	held := min(High(c.HeldMemory.Value), c.High)
	to = floor
	if above := held - floor; float64(above) > leastStep*float64(held) {
		to = floor + above/2
		reclaim = series.Bytes(above)
	}
	if to >= c.High || c.High != NoHigh && float64(c.High-to) < leastStep*float64(c.High) {
		return c.High, 0, 0
	}
	return to, series.Bytes(max(held-to, 0)), reclaim
}

// drops tells whether files are dropped for steps.
func drops(steps []MemoryThrottle) bool {
	return slices.ContainsFunc(steps, func(t MemoryThrottle) bool { return t.Frees > 0 })
}

// waits tells whether evictions for a rule wait for steps of throttling: for those alone that somebody carries out and that take something
// off what the rule is about, and for files that are dropped no longer than they can matter.
func (d *decision) waits(r *Rule, f *Finding, throttles []Throttle, memory []MemoryThrottle) bool {
	st := d.s.rules[r.Name]
	if st.metric.victims() == CPU {
		return len(throttles) > 0 && !d.policy.Untaken[CPU]
	}
	if !drops(memory) || d.policy.Untaken[Memory] {
		return false
	}
	if st.dropping = earlier(st.dropping, d.o.At); st.dropping.IsZero() {
		st.dropping = d.o.At
	}
	if d.o.At.Sub(st.dropping) >= d.policy.Limits.Drop {
		return false
	}
	if f.Why == "" {
		f.Why = fmt.Sprintf("nobody is evicted while files are dropped, for %s at most", d.policy.Limits.Drop)
	}
	return true
}
