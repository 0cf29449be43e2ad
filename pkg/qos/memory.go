// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// MemoryHigh is a memory limit in force, as memory.high: memory above it is reclaimed and a process that grows beyond it is slowed down,
// but not killed. 0 means unknown.
type MemoryHigh units.Bytes

// NoMemoryHigh means no limit.
const NoMemoryHigh MemoryHigh = math.MaxInt64

// MemoryThrottleSettings lower the memory limits of pods: first page cache is reclaimed, then growth is limited.
type MemoryThrottleSettings struct {
	// Reclaim reclaims all of it at once instead of half of it per measurement.
	Reclaim bool
}

// MemoryThrottle is a change of a container's memory limit.
type MemoryThrottle struct {
	Pod                        PodRef
	ContainerID, ContainerName string
	From, To                   MemoryHigh
	// Original is the limit before the first throttle.
	Original MemoryHigh
	// Freed is the page cache to reclaim in bytes; 0 if only growth is limited, negative if the limit is raised.
	Freed units.Bytes
	// Reclaim is the number of bytes to reclaim at once, before the limit is lowered.
	Reclaim units.Bytes
	Rule    string
	Reason  string
}

const (
	// workingSetMargin is the distance of a limit above the working set, so that the memory in use does not stall: only unused page cache
	// and growth are affected. 5 % are some seconds of growth of a program that doubles in a minute.
	workingSetMargin = 0.05
	// minMemoryHigh is the smallest limit: a shell needs some MiB.
	minMemoryHigh MemoryHigh = 16 << 20
	// minStepRatio is the smallest change of a limit, as a share of it, that is written.
	minStepRatio = 0.02
	// restoreRatio is the share of a limit by which it is raised per step.
	restoreRatio = 0.1
	// maxMemoryStall is the share of time stalled for memory from which a pod is not throttled further.
	maxMemoryStall units.Ratio = 0.25
	// highRounding is the most the kernel rounds a limit down: it counts in pages of at most 64 KiB.
	highRounding MemoryHigh = 64 << 10
)

// String formats the limit in MiB.
func (h MemoryHigh) String() string {
	switch {
	case h == NoMemoryHigh:
		return "no limit"
	case h <= 0:
		return "unknown"
	}

	return fmt.Sprintf("%.0f MiB", float64(h)/(1<<20))
}

// throttles reports whether the action throttles a resource.
func (a *Action) throttles(r units.Resource) bool {
	if r == units.Memory {
		return a.ThrottleMemory != nil
	}

	return a.Throttle != nil
}

// planMemoryThrottles plans the steps of a firing rule on memory in victim order: page cache is reclaimed, one container after the other,
// until it closes the gap; in addition the growth of one container without page cache is limited. If the metric measures no amount of
// memory, it stops after the first container with page cache.
func (d decision) planMemoryThrottles(r *Rule, gap float64, quantified bool, earlier *planned) (out []MemoryThrottle, reason string) {
	if r.Action.ThrottleMemory == nil || !d.metric(r).IsMemory() {
		return nil, ""
	}

	remaining := gap
	unmeasured := 0
	atFloor := 0
	sandboxed := 0

	growthLimited := false
	for _, p := range d.orderVictims(r, ByMemory) {
		if p.Terminating || d.memoryStalled(p, r) {
			continue
		}

		if p.hasMemoryOutsideContainers(d.observation.At, r.MaxAge) || p.runsOutsideContainers(d.observation.At, r.MaxAge) {
			sandboxed++
			continue
		}

		for i := range p.Containers {
			c := &p.Containers[i]
			switch {
			case earlier.limits[limitKey{units.Memory, c.ID}]:
				continue
			case !c.memoryMeasured(d.observation.At, r.MaxAge):
				unmeasured++
				continue
			}

			step, ok := d.nextMemoryStep(r, p, c)
			switch {
			case !ok:
				atFloor++
				continue
			case step.Freed == 0 && growthLimited:
				continue
			}

			// Only page cache closes the gap; the growth of one container is limited beside it.
			out = append(out, step)
			growthLimited = growthLimited || step.Freed == 0

			remaining -= float64(step.Freed)
			if step.Freed > 0 && (remaining <= 0 || !quantified) {
				return out, ""
			}
		}
	}

	if len(out) == 0 {
		reason = fmt.Sprintf("no memory to throttle: %d containers have nothing above their use or request, %d are unmeasured", atFloor, unmeasured)
		if sandboxed > 0 {
			reason += fmt.Sprintf(", the memory of %d pods is %s", sandboxed, outsideContainers)
		}
	}

	return out, reason
}

// nextMemoryStep returns the next throttle of a container; false if nothing is left to reclaim.
func (d decision) nextMemoryStep(r *Rule, p *Pod, c *Container) (MemoryThrottle, bool) {
	to, freed, reclaim := c.nextMemoryHigh()
	if to == c.MemoryHigh {
		return MemoryThrottle{}, false
	}

	step := MemoryThrottle{
		Pod:           p.ref(),
		ContainerID:   c.ID,
		ContainerName: c.Name,
		From:          c.MemoryHigh,
		To:            to,
		Original:      c.MemoryHigh,
		Freed:         freed,
		Rule:          r.Name,
		Reason:        fmt.Sprintf("holds %s, of which %s in use; %s", MemoryHigh(c.MemoryUsage.Value), MemoryHigh(c.WorkingSet.Value), p.describe(d.observation.At)),
	}

	if record := d.state.highs[c.ID]; record != nil {
		step.Original = record.Original
	}
	if r.Action.ThrottleMemory.Reclaim {
		step.Reclaim = reclaim
	}

	return step, true
}

// memoryStalled reports whether a pod stalls so much that it is not throttled further. Under interference every pod stalls, the growing
// one too, so it is ignored.
func (d decision) memoryStalled(p *Pod, r *Rule) bool {
	return d.interferedPod(r) == nil && p.StalledMemory.fresh(d.observation.At, r.MaxAge) && p.StalledMemory.Value > maxMemoryStall
}

// hasMemoryOutsideContainers reports whether a pod uses memory and its containers hold next to none, not even page cache: it is of a virtual
// machine, or of a volume in memory that an ended container wrote.
func (p *Pod) hasMemoryOutsideContainers(now time.Time, maxAge time.Duration) bool {
	const noticeable = 64 << 20
	return usesOutsideContainers(p, p.UsedMemory, func(c *Container) Measurement[units.Bytes] { return c.MemoryUsage }, noticeable, now, maxAge)
}

// memoryMeasured reports whether the container's memory limit and use are known.
func (c *Container) memoryMeasured(now time.Time, maxAge time.Duration) bool {
	return c.MemoryHigh > 0 && c.MemoryUsage.fresh(now, maxAge) && c.WorkingSet.fresh(now, maxAge)
}

// nextMemoryHigh returns the next limit of a container, the current one if nothing is left to reclaim, the page cache reclaimed by it and
// all that can be reclaimed, in bytes.
func (c *Container) nextMemoryHigh() (to MemoryHigh, freed, reclaim units.Bytes) {
	used := MemoryHigh(float64(c.WorkingSet.Value) * (1 + workingSetMargin))
	floor := max(MemoryHigh(c.RequestMemory), used, minMemoryHigh)

	usage := min(MemoryHigh(c.MemoryUsage.Value), c.MemoryHigh)
	to = floor
	if above := usage - floor; float64(above) > minStepRatio*float64(usage) {
		to = floor + above/2
		reclaim = units.Bytes(above)
	}

	if to >= c.MemoryHigh || c.MemoryHigh != NoMemoryHigh && float64(c.MemoryHigh-to) < minStepRatio*float64(c.MemoryHigh) {
		return c.MemoryHigh, 0, 0
	}

	return to, units.Bytes(max(usage-to, 0)), reclaim
}

// reclaimsFiles reports whether steps reclaim page cache.
func reclaimsFiles(steps []MemoryThrottle) bool {
	return slices.ContainsFunc(steps, func(t MemoryThrottle) bool { return t.Freed > 0 })
}

// deferEvictions reports whether the evictions of a rule wait for throttles: only for throttles that are enforced and affect the rule's
// resource, and for page cache no longer than Limits.ReclaimWait.
func (d decision) deferEvictions(r *Rule, a Actions) (deferred bool, reason string) {
	st := d.state.rules[r.Name]
	if !st.metric.IsDisk() && !st.metric.IsMemory() {
		return len(a.Throttles) > 0 && !d.policy.Unthrottled[units.CPU], ""
	}

	if !reclaimsFiles(a.MemoryThrottles) || d.policy.Unthrottled[units.Memory] {
		return false, ""
	}

	st.reclaimingSince = earlier(st.reclaimingSince, d.observation.At)
	if st.reclaimingSince.IsZero() {
		st.reclaimingSince = d.observation.At
	}

	if d.observation.At.Sub(st.reclaimingSince) >= d.policy.Limits.ReclaimWait {
		return false, ""
	}

	return true, fmt.Sprintf("no pod is evicted while page cache is reclaimed, for at most %s", d.policy.Limits.ReclaimWait)
}
