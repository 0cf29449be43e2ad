// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math/bits"

	"crane.io/crane/pkg/series"
)

// PageCachePolicy says what becomes of page cache that counts as memory in use. The working set holds the files that were
// read more than once (active_file); the kernel gives them back under pressure, at the price of reading them again.
type PageCachePolicy struct {
	// LeaveOut, 0 to 1, is the share of that cache that the request need not hold; 0 holds the whole working set.
	LeaveOut series.Ratio `json:"leaveOut"`
	// TrustRSS takes what is not anonymous memory (rss) for page cache where the source does not tell the cache itself.
	// Shared memory and tmpfs are not in rss either and cannot be given back, so that is for those who use none.
	TrustRSS bool `json:"trustRSS"`
}

// ReclaimBasis says how memory that cannot be given back was told apart.
type ReclaimBasis uint8

// The bases.
const (
	// BasisUnknown is the zero value.
	BasisUnknown ReclaimBasis = iota
	// WithoutActiveFile is the working set without active_file: anonymous and shared memory, tmpfs, the kernel's own.
	WithoutActiveFile
	// AnonymousOnly is rss: a lower bound, because shared memory, tmpfs and kernel memory are missing in it.
	AnonymousOnly
)

// AddUnreclaimable adds what of its memory one pod could not give back, in bytes, and returns how many samples it counted. Each
// value is the largest within its step, which may be as long as an hour; the memory of the same hours must be added with
// AddMemory, before or after. Every sample must be added only once.
func (p *Profile) AddUnreclaimable(u Usage, basis ReclaimBasis) (counted int) {
	pod := podHash(u.Pod)
	for date, part := range u.Series.Days() {
		if d := p.dayOf(date, part); d != nil {
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

// unreclaimable is how much of the pod's peak could not be given back: all of it where that was not told for each hour in which
// its memory was seen. The newest hour may be missing, because it is told only when it is over.
func (p PodPeak) unreclaimable() float32 {
	missing := p.MemoryHours &^ p.UnreclaimableHours
	if p.UnreclaimableHours == 0 || missing&^(1<<(bits.Len32(p.MemoryHours|1)-1)) != 0 {
		return p.Peak
	}
	return min(p.Unreclaimable, p.Peak)
}

// requiredMemory is what the request has to hold of a peak.
func requiredMemory(peak, stays float32, leaveOut series.Ratio) float64 {
	return float64(peak) - float64(leaveOut)*max(0, float64(peak)-float64(stays))
}

// requiredPeak is the most on this day that no pod could have given back; the largest memory where that is not known.
func (d *Day) requiredPeak(leaveOut series.Ratio, without map[uint32]bool) float64 {
	whole := d.maxPeakWithout(without)
	if leaveOut == 0 || !d.hasCacheSplit() {
		return whole
	}
	most, lowest := 0.0, float64(maxFloat32)
	for _, p := range d.Peaks {
		lowest = min(lowest, float64(p.Peak))
		if !without[p.Pod] {
			most = max(most, requiredMemory(p.Peak, p.unreclaimable(), leaveOut))
		}
	}
	if len(d.Peaks) == maxPodsPerDay {
		most = max(most, lowest) // Those that were dropped may have had as much.
	}
	return min(most, whole)
}

// hasCacheSplit tells whether page cache was told from the rest for any pod on this day.
func (d *Day) hasCacheSplit() bool { return d.ReclaimBasis != BasisUnknown }

// basisOf is the weakest of the bases of the days.
func basisOf(days []*Day) (basis ReclaimBasis) {
	for _, d := range days {
		basis = max(basis, d.ReclaimBasis)
	}
	return basis
}

// cacheSplit is what page cache has to do with an estimate.
type cacheSplit struct {
	// whole, needed and held are estimates of the working set, of what the request holds of it, and of what cannot be
	// given back. All are 0 where nothing was told apart.
	whole, needed, unreclaimable float64
	leaveOut                     series.Ratio
	basis                        ReclaimBasis
}

// excludedShare is the share of page cache that an estimate leaves out: none where it is not known, or not trusted.
func (p PageCachePolicy) excludedShare(basis ReclaimBasis) series.Ratio {
	if basis == BasisUnknown || basis == AnonymousOnly && !p.TrustRSS {
		return 0
	}
	return p.LeaveOut
}

// notableCacheShare is the share of page cache in an estimate from which it is worth a finding.
const notableCacheShare = 0.2

// pageCache says how page cache changes the estimate, with the numbers behind it.
func (s *sizer) pageCache(c cacheSplit) {
	if c.whole <= 0 || c.unreclaimable >= c.whole {
		return
	}
	cache := c.whole - c.unreclaimable
	if c.leaveOut == 0 {
		if cache >= notableCacheShare*c.whole && c.basis == AnonymousOnly {
			s.flag(FlagPageCache, fmt.Sprintf("of %s only %s are anonymous memory; up to %s may be page cache and count all the same, "+
				"because rss does not tell it from shared memory, which cannot be given back", s.unit.format(c.whole), s.unit.format(c.unreclaimable), s.unit.format(cache)))
		}
		return
	}
	detail := fmt.Sprintf("of %s only %s cannot be given back; %s are page cache, %s of which the request holds",
		s.unit.format(c.whole), s.unit.format(c.unreclaimable), s.unit.format(cache), percent(1-c.leaveOut))
	if c.basis == AnonymousOnly {
		detail += ", taken from rss as the policy says"
	}
	if cache >= notableCacheShare*c.whole {
		s.flag(FlagPageCache, detail)
	}
	s.Message += "; " + detail
	s.step(StepPageCache, c.needed, detail)
}
