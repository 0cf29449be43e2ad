// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// Interference is detected by comparing a pod with its own past: a latency-sensitive pod is interfered with if it waits for a resource
// longer than usual while other pods use more of it, or none of it is left. Its usual wait is the median in calm times with their scatter;
// no samples are learned while any pod of the node is interfered with.
//
// Waiting for its own limit is not interference: the share of time in which the limit stopped the pod is subtracted. Neither is waiting
// caused by a higher use of its own while the node has capacity left.

const (
	// deviationFactor is the number of deviations above the median that is still usual, and minExcess the share of time above the median
	// that always is: small noise never counts, however calm the pod was before.
	deviationFactor = 3
	minExcess       = 0.05
	// contentionThreshold is the share of a resource in use from which all its users compete.
	contentionThreshold = 0.8
	// minRise is the smallest increase of a pod's use that counts, as a share of the node's capacity.
	minRise = 0.02
	// minDiskShare replaces minRise for disks, whose capacity is unknown: a share of the use of all pods. minDiskWork
	// is a negligible amount, a tenth of the performance of a rotating disk.
	minDiskShare = 0.05
	minDiskWork  = 10
	// relearnAfter is how long a pod waits longer than usual before its wait becomes the usual one. No action helped in that time, and a
	// wrong baseline must not throttle other pods forever.
	relearnAfter = time.Hour
)

// contendedResources lists the resources pods compete for, in the order of arrays by resource.
var contendedResources = [...]units.Resource{units.CPU, units.Memory, Disks}

// podHistory holds the samples of a pod.
type podHistory struct {
	waits, uses [len(contendedResources)]ring
	// measured holds the times of the last measurements, learned those of the last measurements added to the rings.
	measured, learned [len(contendedResources)]time.Time
	// aboveSince is since when the pod waits longer than usual; zero if it does not.
	aboveSince [len(contendedResources)]time.Time
	lastRun    uint64
}

// detector learns the usual waits and uses of the pods of a node.
type detector struct {
	runs     uint64
	pods     map[string]*podHistory
	verdicts [len(contendedResources)][]verdict
	// learning counts the pods whose usual wait is not known yet; useUnknown reports that the node's use is unknown.
	learning   [len(contendedResources)]int
	useUnknown [len(contendedResources)]bool
	// restored reports that the history was loaded and no rule has used it yet; restoredAt is since when.
	restored   bool
	restoredAt time.Time
}

// verdict is the evaluation of a latency-sensitive pod and a resource.
type verdict struct {
	pod *Pod
	// wait is the share of time the pod waited, without that caused by its own limit; median and deviation describe its usual wait.
	wait, median, deviation float64
	at                      time.Time
	// excess is how much longer than usual the pod waits because of others; 0 without interference.
	excess float64
	// ownCause explains why a longer wait is not interference.
	ownCause string
}

// update evaluates every latency-sensitive pod, learns from calm times and drops deleted pods.
func (d *detector) update(o *Observation, maxAge time.Duration) {
	if d.pods == nil {
		d.pods = map[string]*podHistory{}
	}

	d.runs++
	for i := range o.Pods {
		p := &o.Pods[i]
		h := d.pods[p.UID]
		if h == nil {
			h = &podHistory{}
			d.pods[p.UID] = h
		}

		h.lastRun = d.runs
	}

	for uid, h := range d.pods {
		if h.lastRun != d.runs {
			delete(d.pods, uid)
		}
	}

	for k, r := range contendedResources {
		// While the use of the node is unknown, a longer wait has no explanation.
		d.verdicts[k] = d.verdicts[k][:0]
		d.learning[k] = 0
		used, ok := o.used(r, maxAge)
		d.useUnknown[k] = !ok

		if ok {
			d.evaluate(k, used, o, maxAge)
			d.learn(k, o, maxAge)
		}
	}
}

// waitShare returns the share of time the pod waited for a resource, without that caused by its own limit.
func (p *Pod) waitShare(r units.Resource, now time.Time, maxAge time.Duration) (float64, time.Time, bool) {
	m := p.stalled(r)
	if !m.fresh(now, maxAge) {
		return 0, time.Time{}, false
	}

	share := min(float64(m.Value), 1)
	if r == units.CPU {
		if p.Throttled.fresh(now, maxAge) {
			// The pod waited for only a part of a period its limit cut short; subtracting all of it errs on the side of doing nothing.
			share = max(share-float64(p.Throttled.Value), 0)
		}
	}

	return share, m.At, true
}

// evaluate makes the verdicts on a resource of which the node uses the given share.
func (d *detector) evaluate(k int, used units.Ratio, o *Observation, maxAge time.Duration) {
	for i := range o.Pods {
		p := &o.Pods[i]
		if p.SensitiveReason == "" {
			continue
		}

		h := d.pods[p.UID]
		share, at, ok := p.waitShare(contendedResources[k], o.At, maxAge)
		if !ok {
			continue
		}

		if h.waits[k].n < minSamples {
			d.learning[k]++
			continue
		}

		// The wait is compared with the pod's own past, whatever other pods wait.
		v := verdict{pod: p, wait: share, at: at}

		v.median, v.deviation = h.waits[k].stats()
		if share > v.median+max(deviationFactor*v.deviation, minExcess) {
			v.ownCause = d.ownCause(k, p, used, o, maxAge)
			if v.ownCause == "" {
				v.excess = share - v.median
			}
		}

		d.verdicts[k] = append(d.verdicts[k], v)
	}
}

// ownCause returns why a pod that waits longer than usual is not interfered with; empty if it is.
func (d *detector) ownCause(k int, p *Pod, used units.Ratio, o *Observation, maxAge time.Duration) string {
	r := contendedResources[k]
	switch {
	case r == units.Memory && p.atMemoryLimit(o.At, maxAge):
		return "it is at its own memory limit"
	case r == units.CPU && p.ExclusiveCPUs:
		return "it has exclusive CPUs"
	}

	if used >= contentionThreshold {
		return ""
	}

	nodeUse := fmt.Sprintf("the node uses %.0f %% of its %s", 100*used, r)
	if r == units.Memory {
		// While memory is available the pod waits for its own limit, whatever other pods do.
		return nodeUse
	}

	if r == Disks {
		// A slow disk is no interference.
		nodeUse = "the capacity of disks is unknown"
	}

	largestRise, totalRise := 0.0, 0.0
	for i := range o.Pods {
		if other := &o.Pods[i]; other.UID != p.UID {
			rise := d.increase(k, other, o.At, maxAge)
			largestRise = max(largestRise, rise)
			totalRise += max(rise, 0)
		}
	}

	ownRise := d.increase(k, p, o.At, maxAge)
	switch {
	case largestRise < o.minRise(r, maxAge):
		return nodeUse + ", and no other pod uses more than usual"
	case ownRise > totalRise:
		return fmt.Sprintf("%s, and the pod itself uses %s more than usual", nodeUse, formatAmount(r, ownRise))
	}

	return ""
}

// used returns the share of a resource in use. It is unknown for disks, and 0 if the disk use of pods is measured.
func (o *Observation) used(r units.Resource, maxAge time.Duration) (units.Ratio, bool) {
	if r != Disks {
		return o.Node.used(r, o.At, maxAge)
	}

	return 0, slices.ContainsFunc(o.Pods, func(p Pod) bool { return p.UsedDisks.fresh(o.At, maxAge) })
}

// minRise returns the smallest increase of a pod's use that counts.
func (o *Observation) minRise(r units.Resource, maxAge time.Duration) float64 {
	if r != Disks {
		return minRise * o.Node.capacity(r)
	}

	sum := 0.0
	for i := range o.Pods {
		use, _ := o.Pods[i].use(Disks, o.At, maxAge)
		sum += use
	}

	return max(minDiskShare*sum, minDiskWork)
}

// atMemoryLimit reports whether a container uses nearly all of its own memory limit, so that it waits for that.
func (p *Pod) atMemoryLimit(now time.Time, maxAge time.Duration) bool {
	const nearly = 0.95
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		limit := MemoryHigh(c.LimitMemory)
		if c.MemoryHigh > 0 && (limit == 0 || c.MemoryHigh < limit) {
			limit = c.MemoryHigh
		}

		return limit > 0 && c.WorkingSet.fresh(now, maxAge) && float64(c.WorkingSet.Value) >= nearly*float64(limit)
	})
}

// increase returns how much more than usual a pod uses: all of its use if its usual use was not learned, and 0 if its use is unknown.
func (d *detector) increase(k int, p *Pod, now time.Time, maxAge time.Duration) float64 {
	use, ok := p.use(contendedResources[k], now, maxAge)
	h := d.pods[p.UID]
	if !ok || h == nil {
		return 0
	}

	if h.uses[k].n < minSamples {
		return use
	}

	usual, _ := h.uses[k].stats()
	return use - usual
}

// learn adds the measurements of calm times to the rings.
func (d *detector) learn(k int, o *Observation, maxAge time.Duration) {
	calm := true
	above := map[string]bool(nil)
	for i := range d.verdicts[k] {
		v := &d.verdicts[k][i]
		calm = calm && v.excess == 0

		if v.excess > 0 || v.ownCause != "" {
			if above == nil {
				above = map[string]bool{}
			}
			above[v.pod.UID] = true
		}
	}

	// Uses are learned from all pods in calm times, waits only from latency-sensitive pods that wait as usual.
	for i := range o.Pods {
		p := &o.Pods[i]
		h := d.pods[p.UID]
		h.measured[k] = earlier(h.measured[k], o.At)
		h.learned[k] = earlier(h.learned[k], o.At)
		h.aboveSince[k] = earlier(h.aboveSince[k], o.At)
		d.relearn(k, h, above[p.UID], o.At)

		use, uses := p.use(contendedResources[k], o.At, maxAge)
		at := p.measuredAt(contendedResources[k])
		if !calm || !uses || !at.After(h.measured[k]) || o.At.Sub(h.learned[k]) < sampleInterval {
			continue
		}

		h.measured[k] = at
		h.learned[k] = o.At
		h.uses[k].add(use)

		if share, _, ok := p.waitShare(contendedResources[k], o.At, maxAge); ok && !above[p.UID] && p.SensitiveReason != "" {
			h.waits[k].add(share)
		}
	}
}

// relearn discards the usual wait of a pod that exceeded it for too long.
func (d *detector) relearn(k int, h *podHistory, above bool, now time.Time) {
	switch {
	case !above:
		h.aboveSince[k] = time.Time{}
	case h.aboveSince[k].IsZero():
		h.aboveSince[k] = now
	case now.Sub(h.aboveSince[k]) >= relearnAfter:
		h.waits[k].clear()
		h.aboveSince[k] = time.Time{}
	}
}

// Metrics of interference: the excess, as a ratio of time, that a pod waits for CPU, memory or disks because of other pods.
const (
	InterferenceCPU    = "pod_interference_cpu_ratio"
	InterferenceMemory = "pod_interference_memory_ratio"
	InterferenceIO     = "pod_interference_io_ratio"
)

// interferenceResource returns the resource of an interference metric; NoResource for other metrics.
func interferenceResource(metric string) units.Resource {
	switch metric {
	case InterferenceCPU:
		return units.CPU
	case InterferenceMemory:
		return units.Memory
	case InterferenceIO:
		return Disks
	}

	return NoResource
}

// resourceIndex returns the position of a resource in arrays by resource.
func resourceIndex(r units.Resource) int {
	return max(slices.Index(contendedResources[:], r), 0)
}

// samples returns the verdicts on a resource as samples of a metric, or why there are none.
func (d *detector) samples(r units.Resource) (samples []Sample, why string) {
	k := resourceIndex(r)
	for _, v := range d.verdicts[k] {
		samples = append(samples, Sample{Value: v.excess, At: v.at, Labels: v.pod.Labels})
	}

	if len(samples) > 0 {
		return samples, ""
	}

	if d.useUnknown[k] {
		if r == Disks {
			return nil, "the disk use of pods is unknown"
		}

		return nil, fmt.Sprintf("the use of %s by the node is unknown", r)
	}

	if n := d.learning[k]; n > 0 {
		return nil, fmt.Sprintf("the usual wait of %d latency-sensitive pods is not known yet: learning takes %s", n, minSamples*sampleInterval)
	}

	return nil, "no waiting time of a latency-sensitive pod is known"
}

// worst returns the verdict on the selected pod with the largest excess; if no pod is interfered with, one that explains a longer wait.
func (d *detector) worst(r *Rule, resource units.Resource) *verdict {
	var out *verdict
	list := d.verdicts[resourceIndex(resource)]
	for i := range list {
		v := &list[i]
		if r.Matches != nil && !r.Matches(v.pod.Labels) {
			continue
		}

		if out == nil || v.excess > out.excess || v.excess == out.excess && out.ownCause == "" && v.ownCause != "" {
			out = v
		}
	}

	return out
}
