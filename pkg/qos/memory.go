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

// MemoryHigh is a limit of memory in force: what is above it is reclaimed, and who grows above it sleeps; nobody is killed for it. NoMemoryHigh is
// the largest, and 0 unknown.
type MemoryHigh series.Bytes

// NoMemoryHigh is no limit.
const NoMemoryHigh MemoryHigh = math.MaxInt64

// MemoryThrottleSettings takes memory from pods: files that can be read again at first, and room to grow.
type MemoryThrottleSettings struct {
	// Reclaim has all of it dropped at once, where otherwise half of it is at each measurement.
	Reclaim bool
}

// MemoryThrottle is a change of a container's limit of memory.
type MemoryThrottle struct {
	Pod                        PodRef
	ContainerID, ContainerName string
	From, To                   MemoryHigh
	// Original is what the limit was before anything was taken.
	Original MemoryHigh
	// Freed is what has to be dropped for it; 0 where only room to grow is taken, and negative where room is given back.
	Freed series.Bytes
	// Reclaim is what is to be dropped at once, before the limit falls.
	Reclaim series.Bytes
	Rule    string
	Reason  string
}

const (
	// workingSetMargin is how far above its working set a container's limit stays, so that what it uses now does not stall: only what it has
	// not used lately goes, and growth. 5 % are some seconds of growth of a program that doubles in a minute.
	workingSetMargin = 0.05
	// minMemoryHigh is the least limit: a shell needs some MiB.
	minMemoryHigh MemoryHigh = 16 << 20
	// minStepRatio is the share of a limit below which a step is not worth a write.
	minStepRatio = 0.02
	// restoreRatio is the share of a limit by which it is raised.
	restoreRatio = 0.1
	// maxMemoryStall is the share of time stalled for memory from which on nothing more is taken from a pod.
	maxMemoryStall series.Ratio = 0.25
	// highRounding is what the kernel may take off a limit: it counts in pages, of 64 KiB at most.
	highRounding MemoryHigh = 64 << 10
)

// String is a limit in MiB.
func (h MemoryHigh) String() string {
	switch {
	case h == NoMemoryHigh:
		return "no limit"
	case h <= 0:
		return "unknown"
	}
	return fmt.Sprintf("%.0f MiB", float64(h)/(1<<20))
}

// throttles tells whether an action takes a resource from pods.
func (a *Action) throttles(r Resource) bool {
	if r == Memory {
		return a.ThrottleMemory != nil
	}
	return a.Throttle != nil
}

// planMemoryThrottles plans the steps of a rule about memory that fires, in victim order: files are dropped, of one container after the other,
// until what is dropped closes the gap; and one container that has none to drop is kept from growing. The next measurement decides on; so
// it does after the first one that drops files where the metric is no amount of memory.
func (d *decision) planMemoryThrottles(r *Rule, f *Finding, gap float64, quantified bool) []MemoryThrottle {
	if r.Action.ThrottleMemory == nil || d.state.rules[r.Name].metric.victimResource() != Memory {
		return nil
	}
	var out []MemoryThrottle
	left, unmeasured, done, kept := gap, 0, 0, false
	for _, p := range d.orderVictims(r, f, ByMemory) {
		if p.Terminating || d.memoryStalled(p, r) {
			continue
		}
		for i := range p.Containers {
			c := &p.Containers[i]
			switch {
			case d.changed[limitKey{Memory, c.ID}]:
				continue
			case !c.memoryMeasured(d.observation.At, r.MaxAge):
				unmeasured++
				continue
			}
			step, ok := d.nextMemoryStep(r, p, c)
			switch {
			case !ok:
				done++
				continue
			case step.Freed == 0 && kept:
				continue
			}
			out = append(out, step)
			kept = kept || step.Freed == 0
			if left -= float64(step.Freed); step.Freed > 0 && (left <= 0 || !quantified) {
				return out
			}
		}
	}
	if len(out) == 0 && f.Reason == "" {
		f.Reason = fmt.Sprintf("no memory to throttle: %d containers have nothing above what they use or request, %d are not measured", done, unmeasured)
	}
	return out
}

// nextMemoryStep is the next step of a container's memory; false where nothing is left to be taken.
func (d *decision) nextMemoryStep(r *Rule, p *Pod, c *Container) (MemoryThrottle, bool) {
	to, frees, reclaim := c.nextMemoryHigh()
	if to == c.MemoryHigh {
		return MemoryThrottle{}, false
	}
	step := MemoryThrottle{
		Pod: p.ref(), ContainerID: c.ID, ContainerName: c.Name, From: c.MemoryHigh, To: to, Original: c.MemoryHigh, Freed: frees, Rule: r.Name,
		Reason: fmt.Sprintf("holds %s, of which %s in use; %s", MemoryHigh(c.MemoryUsage.Value), MemoryHigh(c.WorkingSet.Value), p.describe(d.observation.At)),
	}
	if k := d.state.highs[c.ID]; k != nil {
		step.Original = k.Original
	}
	if r.Action.ThrottleMemory.Reclaim {
		step.Reclaim = reclaim
	}
	return step, true
}

// memoryStalled tells whether a pod waits for memory so much that nothing more is taken from it. Where a pod is interfered with, everybody waits
// for memory, who grows as well.
func (d *decision) memoryStalled(p *Pod, r *Rule) bool {
	return d.interferedPod(r) == nil && p.StalledMemory.fresh(d.observation.At, r.MaxAge) && p.StalledMemory.Value > maxMemoryStall
}

// memoryMeasured tells whether a container's limit of memory and what it holds are known.
func (c *Container) memoryMeasured(now time.Time, maxAge time.Duration) bool {
	return c.MemoryHigh > 0 && c.MemoryUsage.fresh(now, maxAge) && c.WorkingSet.fresh(now, maxAge)
}

// nextMemoryHigh is the next limit of a container, the present one where nothing is left to be taken, what is dropped for it, and all that can
// be dropped.
func (c *Container) nextMemoryHigh() (to MemoryHigh, frees, reclaim series.Bytes) {
	used := MemoryHigh(float64(c.WorkingSet.Value) * (1 + workingSetMargin))
	floor := max(MemoryHigh(c.RequestMemory), used, minMemoryHigh)
	held := min(MemoryHigh(c.MemoryUsage.Value), c.MemoryHigh)
	to = floor
	if above := held - floor; float64(above) > minStepRatio*float64(held) {
		to = floor + above/2
		reclaim = series.Bytes(above)
	}
	if to >= c.MemoryHigh || c.MemoryHigh != NoMemoryHigh && float64(c.MemoryHigh-to) < minStepRatio*float64(c.MemoryHigh) {
		return c.MemoryHigh, 0, 0
	}
	return to, series.Bytes(max(held-to, 0)), reclaim
}

// reclaimsFiles tells whether files are dropped for steps.
func reclaimsFiles(steps []MemoryThrottle) bool {
	return slices.ContainsFunc(steps, func(t MemoryThrottle) bool { return t.Freed > 0 })
}

// deferEvictions tells whether evictions for a rule wait for steps of throttling: for those alone that somebody carries out and that take something
// off what the rule is about, and for files that are dropped no longer than they can matter.
func (d *decision) deferEvictions(r *Rule, f *Finding, throttles []Throttle, memory []MemoryThrottle) bool {
	st := d.state.rules[r.Name]
	if st.metric.victimResource() == CPU {
		return len(throttles) > 0 && !d.policy.Unthrottled[CPU]
	}
	if !reclaimsFiles(memory) || d.policy.Unthrottled[Memory] {
		return false
	}
	if st.reclaimingSince = earlier(st.reclaimingSince, d.observation.At); st.reclaimingSince.IsZero() {
		st.reclaimingSince = d.observation.At
	}
	if d.observation.At.Sub(st.reclaimingSince) >= d.policy.Limits.ReclaimWait {
		return false
	}
	if f.Reason == "" {
		f.Reason = fmt.Sprintf("nobody is evicted while files are dropped, for %s at most", d.policy.Limits.ReclaimWait)
	}
	return true
}
