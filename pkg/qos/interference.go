// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// Interference is found by comparing a pod with itself: a latency-sensitive pod that waits for a resource more than it usually does, while
// others take more of it or there is no more of it, is interfered with. What is usual is the median of its calm times and how far they
// scatter; it is not learnt while anybody on the node is interfered with.
//
// A pod that waits for its own limit is not interfered with: the share of time in which its limit held it up is taken off. Nor is one that
// waits because it does more than usual itself while the node has room.

const (
	// deviationFactor is the number of deviations up to which a pod waits as usual, and minExcess the share of time above the median up to which it
	// does in any case: noise that is small never counts, however calm the pod was before.
	deviationFactor = 3
	minExcess       = 0.05
	// contentionThreshold is the share of a resource in use from which on all that want it compete.
	contentionThreshold = 0.8
	// minRise is the share of the node's capacity from which on it counts that a pod uses more than usual.
	minRise = 0.02
	// minDiskShare is the same for disks, of which the capacity is not known: a share of what all pods do to them; and minDiskWork what
	// no disk feels, a tenth of what a disk that turns can do.
	minDiskShare = 0.05
	minDiskWork  = 10
	// relearnAfter is how long a pod waits more than usual before that is what is usual with it. Whatever it is, nothing has helped in that time,
	// and a baseline that is wrong must not hold others down for ever.
	relearnAfter = time.Hour
)

// contendedResources are the resources that pods compete for, in the order of arrays by resource.
var contendedResources = [...]Resource{CPU, Memory, Disks}

// podHistory is what is remembered of a pod.
type podHistory struct {
	waits, uses [len(contendedResources)]ring
	// measured and learnt are the times of the last measurement that counted, and of the last that went into the rings.
	measured, learnt [len(contendedResources)]time.Time
	// aboveSince is since when it has waited more than usual; zero where it does not.
	aboveSince [len(contendedResources)]time.Time
	lastRun    uint64
}

// detector remembers what is usual with the pods of a node.
type detector struct {
	runs     uint64
	pods     map[string]*podHistory
	verdicts [len(contendedResources)][]verdict
	// learning are the pods of which it is not known yet what is usual; blind that it is not known how much the node uses.
	learning   [len(contendedResources)]int
	useUnknown [len(contendedResources)]bool
	// restored tells that it was remembered and no rule has asked for it yet, since when.
	restored   bool
	restoredAt time.Time
}

// verdict is what is found out about a sensitive pod and a resource.
type verdict struct {
	pod *Pod
	// wait is the share of time that it waited without its own limit's part, usual the median, deviation how far it scatters.
	wait, median, deviation float64
	at                      time.Time
	// excess is the excess: how much more than usual it waits because of others; 0 where it is not interfered with.
	excess float64
	// ownCause says why what it waits more than usual is no interference.
	ownCause string
}

// update judges every sensitive pod and learns what is usual. It forgets pods that are gone.
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
		d.verdicts[k], d.learning[k] = d.verdicts[k][:0], 0
		used, known := o.used(r, maxAge)
		if d.useUnknown[k] = !known; known {
			d.evaluate(k, used, o, maxAge)
			d.learn(k, o, maxAge)
		}
	}
}

// waitShare is the share of time that a pod waited for a resource without the part that is its own limit's.
func (p *Pod) waitShare(r Resource, now time.Time, maxAge time.Duration) (float64, time.Time, bool) {
	m := p.stalled(r)
	if !m.fresh(now, maxAge) {
		return 0, time.Time{}, false
	}
	share := min(float64(m.Value), 1)
	if r == CPU {
		if p.Throttled.fresh(now, maxAge) {
			// Of a period that its limit ended early only a part was waited; to count all of it errs on the side of doing nothing.
			share = max(share-float64(p.Throttled.Value), 0)
		}
	}
	return share, m.At, true
}

// evaluate makes the verdicts of a resource, of which the node uses a share.
func (d *detector) evaluate(k int, used series.Ratio, o *Observation, maxAge time.Duration) {
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
		v := verdict{pod: p, wait: share, at: at}
		v.median, v.deviation = h.waits[k].stats()
		if share > v.median+max(deviationFactor*v.deviation, minExcess) {
			if v.ownCause = d.ownCause(k, p, used, o, maxAge); v.ownCause == "" {
				v.excess = share - v.median
			}
		}
		d.verdicts[k] = append(d.verdicts[k], v)
	}
}

// ownCause says why a pod that waits more than usual is not interfered with, empty where it is.
func (d *detector) ownCause(k int, p *Pod, used series.Ratio, o *Observation, maxAge time.Duration) string {
	r := contendedResources[k]
	switch {
	case r == Memory && p.atMemoryLimit(o.At, maxAge):
		return "it uses what its own limit of memory leaves"
	case r == CPU && p.ExclusiveCPUs:
		return "it has CPUs of its own, and nobody else waits for them"
	}
	if used >= contentionThreshold {
		return ""
	}
	room := fmt.Sprintf("the node uses %.0f %% of its %s", 100*used, r)
	if r == Memory {
		// Where there is memory it waits for its own limit, whatever others do.
		return room
	}
	if r == Disks {
		// A disk that has become slow is nobody's fault.
		room = "how much disks bear is not known"
	}
	most, all := 0.0, 0.0
	for i := range o.Pods {
		if other := &o.Pods[i]; other.UID != p.UID {
			rise := d.increase(k, other, o.At, maxAge)
			most, all = max(most, rise), all+max(rise, 0)
		}
	}
	own := d.increase(k, p, o.At, maxAge)
	switch {
	case most < o.minRise(r, maxAge):
		return room + ", and no other pod uses more than usual"
	case own > all:
		return fmt.Sprintf("%s, and the pod itself uses %s more than usual", room, r.format(own))
	}
	return ""
}

// used is the share of a resource that is in use. Of disks it is not known; it is 0 where what pods do to them is.
func (o *Observation) used(r Resource, maxAge time.Duration) (series.Ratio, bool) {
	if r != Disks {
		return o.Node.used(r, o.At, maxAge)
	}
	return 0, slices.ContainsFunc(o.Pods, func(p Pod) bool { return p.UsedDisks.fresh(o.At, maxAge) })
}

// minRise is from how much on it counts that a pod uses more than usual.
func (o *Observation) minRise(r Resource, maxAge time.Duration) float64 {
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

// atMemoryLimit tells whether a container of a pod uses nearly all that its own limit of memory leaves, so that it waits for that.
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

// increase is how much more than usual a pod uses; all of it where it came after what is usual was learnt. It is 0 where it is not known.
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

// learn takes the measurements of calm times into the rings.
func (d *detector) learn(k int, o *Observation, maxAge time.Duration) {
	calm, above := true, map[string]bool(nil)
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
	for i := range o.Pods {
		p := &o.Pods[i]
		h := d.pods[p.UID]
		h.measured[k], h.learnt[k], h.aboveSince[k] = earlier(h.measured[k], o.At), earlier(h.learnt[k], o.At), earlier(h.aboveSince[k], o.At)
		d.relearn(k, h, above[p.UID], o.At)
		use, uses := p.use(contendedResources[k], o.At, maxAge)
		at := p.measuredAt(contendedResources[k])
		if !calm || !uses || !at.After(h.measured[k]) || o.At.Sub(h.learnt[k]) < sampleInterval {
			continue
		}
		h.measured[k], h.learnt[k] = at, o.At
		h.uses[k].add(use)
		if share, _, ok := p.waitShare(contendedResources[k], o.At, maxAge); ok && !above[p.UID] && p.SensitiveReason != "" {
			h.waits[k].add(share)
		}
	}
}

// relearn makes what lasts what is usual.
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

// Names of the metrics of interference: how much more of the time than usual a pod waits for cpu, memory or disks because of others, as a
// ratio.
const (
	InterferenceCPU    = "pod_interference_cpu_ratio"
	InterferenceMemory = "pod_interference_memory_ratio"
	InterferenceIO     = "pod_interference_io_ratio"
)

// interferenceResource is the resource that a metric of interference is about, None for other metrics.
func interferenceResource(metric string) Resource {
	switch metric {
	case InterferenceCPU:
		return CPU
	case InterferenceMemory:
		return Memory
	case InterferenceIO:
		return Disks
	}
	return NoResource
}

// index is a resource's place in arrays by resource.
func (r Resource) index() int {
	return max(slices.Index(contendedResources[:], r), 0)
}

// samples are the verdicts on a resource as a metric: none where there are only pods of which it is not known what is usual.
func (d *detector) samples(r Resource) (samples []Sample, why string) {
	k := r.index()
	for _, v := range d.verdicts[k] {
		samples = append(samples, Sample{Value: v.excess, At: v.at, Labels: v.pod.Labels})
	}
	if len(samples) > 0 {
		return samples, ""
	}
	if d.useUnknown[k] {
		if r == Disks {
			return nil, "what pods do to disks is not known"
		}
		return nil, fmt.Sprintf("how much %s the node uses is not known", r)
	}
	if n := d.learning[k]; n > 0 {
		return nil, fmt.Sprintf("what is usual with %d latency-sensitive pods is not known yet: that takes %s", n, minSamples*sampleInterval)
	}
	return nil, "no latency-sensitive pod of this node says how long it waits"
}

// worst is the verdict on the pod that waits most because of others, of those that a rule selects; else the one of whom it is to be said
// why it is no interference.
func (d *detector) worst(r *Rule, of Resource) *verdict {
	var out *verdict
	list := d.verdicts[of.index()]
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
