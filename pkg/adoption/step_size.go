// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import "crane.io/crane/pkg/series"

// Raise is from with every amount that is to be larger at its goal, and whether that changes anything. Amounts that from
// lacks are taken over: only new pods can have them.
func Raise(from, want Size, p Policy) (Size, bool) {
	to, changed := from.Clone(), false
	for _, a := range want.amounts() {
		goal, _ := want.get(a)
		now, has := from.get(a)
		if has && (goal <= now || !isMaterial(now, goal, p)) || goal <= 0 {
			continue
		}
		if !has && a.field.limit() {
			continue // A limit where there was none is a cut.
		}
		to.set(a, goal)
		changed = true
	}
	raiseLimitsToRequests(&to)
	return to, changed
}

// Lower is from one step nearer to its goal, downwards only, and whether that changes anything. floor is how low replicas
// may go at the moment.
func Lower(from, want Size, p Policy, floor int32) (Size, bool) {
	to, changed := from.Clone(), false
	for _, a := range want.amounts() {
		goal, _ := want.get(a)
		now, has := from.get(a)
		least := p.floor(a.field)
		if a.field == replicas {
			least = max(least, int64(floor))
		}
		goal = max(goal, least)
		if !has || goal >= now || !isMaterial(now, goal, p) {
			continue
		}
		step := roundMemory(a.field, now, now-stepAmount(now, p.Step))
		if next := max(goal, step); next < now {
			to.set(a, next)
			changed = true
		}
	}
	// A limit must not fall below the request that is still above it.
	raiseLimitsToRequests(&to)
	return to, changed
}

// roundMemory rounds memory up to mebibytes, so that people can read it, as long as that is still less.
func roundMemory(f field, now, next int64) int64 {
	const unit = 1 << 20
	if f != memoryRequest && f != memoryLimit {
		return next
	}
	if up := (next + unit - 1) / unit * unit; up < now {
		return up
	}
	return next
}

// stepAmount is the part of an amount that one step may take: one replica at least, for that is the smallest part.
func stepAmount(now int64, share series.Ratio) int64 {
	return max(1, int64(float64(now)*float64(share)))
}

func isMaterial(now, goal int64, p Policy) bool {
	diff := goal - now
	if diff < 0 {
		diff = -diff
	}
	return diff > 0 && float64(diff) >= float64(p.MinChange)*float64(now)
}

// raiseLimitsToRequests raises limits to the requests below them.
func raiseLimitsToRequests(s *Size) {
	for _, a := range s.amounts() {
		if !a.field.limit() {
			continue
		}
		limit, _ := s.get(a)
		if request, ok := s.get(amount{a.container, a.field.request()}); ok && request > limit {
			s.set(a, request)
		}
	}
}
