// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math/bits"
	"slices"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// PageCachePolicy defines how much page cache the request must hold. The working set includes files that were read more than
// once (active_file); the kernel reclaims them under pressure, and they must then be read again.
type PageCachePolicy struct {
	// LeaveOut, 0 to 1, is the share of that cache that the request need not hold; with 0 it holds the whole working set.
	LeaveOut units.Ratio `json:"leaveOut"`
	// TrustRSS counts all memory outside rss (anonymous memory) as page cache if the source does not report the cache.
	// Shared memory and tmpfs are outside rss too and cannot be reclaimed, so this is only for workloads without them.
	TrustRSS bool `json:"trustRSS"`
}

// ReclaimBasis is the metric that unreclaimable memory was derived from.
type ReclaimBasis uint8

// The bases.
const (
	// BasisUnknown is the zero value.
	BasisUnknown ReclaimBasis = iota
	// WithoutActiveFile is the working set without active_file: anonymous and shared memory, tmpfs, and kernel memory.
	WithoutActiveFile
	// AnonymousOnly is rss: a lower bound, because shared memory, tmpfs and kernel memory are missing.
	AnonymousOnly
)

// AddUnreclaimable adds the memory of one pod that the kernel could not reclaim, in bytes, and returns the number of counted
// samples. Each value is the maximum of its step, which may be as long as an hour; the memory of the same hours must be
// added with AddMemory, before or after. Every sample must be added only once.
func (p *Profile) AddUnreclaimable(u Usage, basis ReclaimBasis) (counted int) {
	pod := podHash(u.Pod)
	for date, part := range u.Series.Days() {
		if d := p.dayOf(date, part); d != nil {
			part, _ := Plausible(part, BytesUnit, u.Capacity)
			counted += d.addUnreclaimable(pod, part, newDayClock(date, part, u.Started), basis)
		}
	}

	return counted
}

func (d *Day) addUnreclaimable(pod uint32, part series.Series, clock dayClock, basis ReclaimBasis) (counted int) {
	peak := PodPeak{Pod: pod}
	for i, v := range part.Values {
		if !(v >= 0 && v <= maxFloat32) {
			continue
		}

		counted++
		peak.Unreclaimable = max(peak.Unreclaimable, float32(v))
		peak.UnreclaimableHours |= 1 << clock.hour(i)
	}

	if counted > 0 {
		d.ReclaimBasis = max(d.ReclaimBasis, basis)
		d.addPeak(peak)
	}

	return counted
}

// unreclaimable returns the unreclaimable part of the pod's peak: all of it unless it is known for each hour with memory
// samples. The newest hour may be missing, because its value is complete only after it.
func (p PodPeak) unreclaimable() float32 {
	missing := p.MemoryHours &^ p.UnreclaimableHours
	if p.UnreclaimableHours == 0 || missing&^(1<<(bits.Len32(p.MemoryHours|1)-1)) != 0 {
		return p.Peak
	}

	return min(p.Unreclaimable, p.Peak)
}

// requiredMemory returns the part of a peak that the request has to hold.
func requiredMemory(peak, unreclaimable float32, leaveOut units.Ratio) float64 {
	return float64(peak) - float64(leaveOut)*max(0, float64(peak)-float64(unreclaimable))
}

// requiredPeak returns the largest memory of this day that the request has to hold, without some pods. It is the largest memory
// if the page cache is unknown, and that of all pods if no other one is left: excluded is not zero.
func (d *Day) requiredPeak(leaveOut units.Ratio, excluded map[uint32]bool) float64 {
	// Pods that are not in the sample of the day may have had as much.
	if d.isSampled() {
		return d.maxPeak()
	}

	if !d.hasOtherPods(excluded) {
		excluded = nil
	}

	largest := d.maxPeakWithout(excluded)
	if leaveOut == 0 || !d.hasCacheSplit() {
		return largest
	}

	required := 0.0
	for _, p := range d.Peaks {
		if !excluded[p.Pod] {
			required = max(required, requiredMemory(p.Peak, p.unreclaimable(), leaveOut))
		}
	}

	return min(required, largest)
}

// hasOtherPods reports whether the memory of any pod but the excluded ones is known on this day.
func (d *Day) hasOtherPods(excluded map[uint32]bool) bool {
	return slices.ContainsFunc(d.Peaks, func(p PodPeak) bool { return p.Peak > 0 && !excluded[p.Pod] })
}

// hasCacheSplit reports whether the page cache of any pod is known on this day.
func (d *Day) hasCacheSplit() bool { return d.ReclaimBasis != BasisUnknown }

// basisOf returns the weakest of the bases of the days.
func basisOf(days []*Day) (basis ReclaimBasis) {
	for _, d := range days {
		basis = max(basis, d.ReclaimBasis)
	}

	return basis
}

// cacheSplit is the part of page cache in an estimate.
type cacheSplit struct {
	// whole, needed and unreclaimable are estimates of the working set, of the part that the request holds, and of the part
	// that cannot be reclaimed. All are 0 if the page cache is unknown.
	workingSet, needed, unreclaimable float64
	leaveOut                          units.Ratio
	basis                             ReclaimBasis
}

// excludedShare returns the share of page cache that an estimate leaves out: none if it is unknown, or not trusted.
func (p PageCachePolicy) excludedShare(basis ReclaimBasis) units.Ratio {
	if basis == BasisUnknown || basis == AnonymousOnly && !p.TrustRSS {
		return 0
	}

	return p.LeaveOut
}

// notableCacheShare is the share of page cache in an estimate from which there is a finding.
const notableCacheShare = 0.2

// pageCache records how page cache changes the estimate.
func (s *sizer) pageCache(c cacheSplit) {
	if c.workingSet <= 0 || c.unreclaimable >= c.workingSet {
		return
	}

	cache := c.workingSet - c.unreclaimable

	// Nothing was left out, which is worth a finding only where cache could not be distinguished from shared memory.
	if c.leaveOut == 0 {
		if cache >= notableCacheShare*c.workingSet && c.basis == AnonymousOnly {
			s.flag(FlagPageCache, fmt.Sprintf("of %s only %s are anonymous memory; up to %s may be page cache and count all the same, "+
				"because rss does not tell it from shared memory, which cannot be given back", s.unit.format(c.workingSet), s.unit.format(c.unreclaimable), s.unit.format(cache)))
		}

		return
	}

	detail := fmt.Sprintf("of %s only %s cannot be given back; %s are page cache, %s of which the request holds",
		s.unit.format(c.workingSet), s.unit.format(c.unreclaimable), s.unit.format(cache), percent(1-c.leaveOut))

	if c.basis == AnonymousOnly {
		detail += ", taken from rss as the policy says"
	}
	if cache >= notableCacheShare*c.workingSet {
		s.flag(FlagPageCache, detail)
	}

	s.Message += "; " + detail
	s.step(StepPageCache, c.needed, detail)
}
